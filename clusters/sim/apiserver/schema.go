package apiserver

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// structure is the part of an OpenAPI schema that custom resources are checked
// by. A schema with anything else is refused when its CRD is created.
type structure struct {
	Type                 string                `json:"type"`
	Nullable             bool                  `json:"nullable"`
	PreserveUnknown      bool                  `json:"x-kubernetes-preserve-unknown-fields"`
	Required             []string              `json:"required"`
	Properties           map[string]*structure `json:"properties"`
	AdditionalProperties *structure            `json:"additionalProperties"`
	Items                *structure            `json:"items"`
	Enum                 []any                 `json:"enum"`
	MinLength            *int                  `json:"minLength"`
	MaxLength            *int                  `json:"maxLength"`
	MaxItems             *int                  `json:"maxItems"`
	Format               string                `json:"format"`
	AnyOf                []*structure          `json:"anyOf"`
}

// formats are those that are checked; of any other the real server checks
// nothing either, or the CRD is refused.
var formats = map[string]func(string) bool{
	"cidr": func(s string) bool { _, err := netip.ParsePrefix(s); return err == nil },
	"ipv4": func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() },
	"ipv6": func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is6() },
}

// toStructure reads a schema, nil if there is none.
func toStructure(schema map[string]any) (*structure, error) {
	if schema == nil {
		return nil, nil
	}
	if err := refuseUnknownWords(schema); err != nil {
		return nil, err
	}
	s := &structure{}
	if err := convert(schema, s); err != nil {
		return nil, badRequest("reading the schema: %v", err)
	}
	return s, nil
}

func convert(from, into any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// schemaWords are what structure understands, and what changes no decision.
var schemaWords = []string{
	"type", "nullable", "x-kubernetes-preserve-unknown-fields", "required", "properties", "additionalProperties", "items",
	"enum", "minLength", "maxLength", "maxItems", "format", "anyOf", "description", "title",
}

func refuseUnknownWords(schema map[string]any) error {
	for _, word := range slices.Sorted(maps.Keys(schema)) {
		if !slices.Contains(schemaWords, word) {
			return notImplemented("%s in the schema of a custom resource", word)
		}
		if err := refuseUnknownBelow(word, schema[word]); err != nil {
			return err
		}
	}
	return nil
}

func refuseUnknownBelow(word string, value any) error {
	switch value := value.(type) {
	case map[string]any:
		if word != "properties" {
			return refuseUnknownWords(value)
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if err := refuseUnknownBelow("", value[name]); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range value {
			if err := refuseUnknownBelow("", item); err != nil {
				return err
			}
		}
	case string:
		if _, known := formats[value]; word == "format" && !known {
			return notImplemented("format %s in the schema of a custom resource", value)
		}
	}
	return nil
}

// place is a field.Path that is only written out when something is wrong there.
// nil is the root.
type place struct {
	parent *place
	name   string
	isKey  bool // name is no field, but a key of a map
	isItem bool // of a list, at index
	index  int
}

func (p *place) path() *field.Path {
	switch {
	case p == nil:
		return nil
	case p.isItem:
		return p.parent.path().Index(p.index)
	case p.isKey:
		return p.parent.path().Key(p.name)
	}
	return p.parent.path().Child(p.name)
}

// check returns what is wrong with a value. Unknown fields are dropped from it
// unless the schema keeps them, as the real server does.
func (s *structure) check(value any, path *place) field.ErrorList {
	if value == nil {
		if s.Nullable || s.Type == "" {
			return nil
		}
		return field.ErrorList{field.Invalid(path.path(), "null", fmt.Sprintf("must be of type %s: \"null\"", s.Type))}
	}
	if !s.hasType(value) {
		return field.ErrorList{field.TypeInvalid(path.path(), value, fmt.Sprintf("must be of type %s", s.Type))}
	}
	errs := s.checkValue(value, path)
	switch value := value.(type) {
	case map[string]any:
		errs = append(errs, s.checkMap(value, path)...)
	case []any:
		for i, item := range value {
			if s.Items != nil {
				errs = append(errs, s.Items.check(item, &place{parent: path, isItem: true, index: i})...)
			}
		}
	}
	return errs
}

func (s *structure) hasType(value any) bool {
	switch value.(type) {
	case map[string]any:
		return s.Type == "object" || s.Type == ""
	case []any:
		return s.Type == "array" || s.Type == ""
	case string:
		return s.Type == "string" || s.Type == ""
	case bool:
		return s.Type == "boolean" || s.Type == ""
	case int64:
		return s.Type == "integer" || s.Type == "number" || s.Type == ""
	case float64:
		return s.Type == "number" || s.Type == ""
	}
	return false
}

// checkValue applies the rules that look at one value only.
func (s *structure) checkValue(value any, path *place) field.ErrorList {
	var errs field.ErrorList
	refuse := func(format string, args ...any) {
		errs = append(errs, field.Invalid(path.path(), value, fmt.Sprintf(format, args...)))
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(v any) bool { return isEqualJSON(v, value) }) {
		errs = append(errs, field.NotSupported(path.path(), value, toStrings(s.Enum)))
	}
	if text, ok := value.(string); ok {
		length := utf8.RuneCountInString(text)
		if s.MinLength != nil && length < *s.MinLength {
			refuse("should be at least %d chars long", *s.MinLength)
		}
		if s.MaxLength != nil && length > *s.MaxLength {
			refuse("may not be more than %d bytes", *s.MaxLength)
		}
		if s.Format != "" && !formats[s.Format](text) {
			refuse("must be of type %s: %q", s.Format, text)
		}
	}
	if list, ok := value.([]any); ok && s.MaxItems != nil && len(list) > *s.MaxItems {
		refuse("must have at most %d items", *s.MaxItems)
	}
	if s.AnyOf != nil && !slices.ContainsFunc(s.AnyOf, func(o *structure) bool { return o.hasType(value) && len(o.check(value, path)) == 0 }) {
		refuse("must validate at least one schema (anyOf)")
	}
	return errs
}

func toStrings(values []any) []string {
	var out []string
	for _, v := range values {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

// dropsNull tells whether the schema does not allow null there. It is then
// removed, as if the client had left the field out.
func (s *structure) dropsNull(name string) bool {
	own := s.Properties[name]
	if own == nil {
		own = s.AdditionalProperties
	}
	return own != nil && !own.Nullable
}

// rootFields are what every object has, whatever its schema says.
var rootFields = []string{"apiVersion", "kind", "metadata"}

func (s *structure) checkMap(value map[string]any, path *place) field.ErrorList {
	var errs field.ErrorList
	for _, name := range s.Required {
		if item, ok := value[name]; !ok || item == nil && s.dropsNull(name) {
			errs = append(errs, field.Required(path.path().Child(name), ""))
		}
	}
	missing := len(errs)
	for name, item := range value {
		switch property := s.Properties[name]; {
		case item == nil && s.dropsNull(name):
			delete(value, name)
		case property != nil:
			errs = append(errs, property.check(item, &place{parent: path, name: name})...)
		case s.AdditionalProperties != nil:
			errs = append(errs, s.AdditionalProperties.check(item, &place{parent: path, name: name, isKey: true})...)
		case !s.PreserveUnknown && s.Type == "object" && (path != nil || !slices.Contains(rootFields, name)):
			delete(value, name)
		}
	}
	slices.SortStableFunc(errs[missing:], func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}
