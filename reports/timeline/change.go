package timeline

import (
	"encoding/json"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// linesMax bounds an object that is compared line by line.
const linesMax = 400

// Change is a write with the object before and after it.
type Change struct {
	Object  string // kind of thing and its name
	Writer  string
	RV      uint64
	Type    history.WriteType
	Lines   []Line   // the object as YAML, both states in one
	Set     []string // addresses whose bit the write set
	Cleared []string // addresses whose bit it cleared
}

// Line is one line of an object.
type Line struct {
	Mark byte // ' ' in both, '-' only before, '+' only after
	Text string
}

// change compares the object of a write with the version before it. It is nil
// for a record that is no write.
func (i *index) change(k int) *Change {
	if k < 0 || i.records[k].Write == nil {
		return nil
	}
	w := i.records[k].Write
	c := &Change{
		Object: w.Resource + " " + strings.TrimPrefix(w.Namespace+"/"+w.Name, "/"),
		Writer: i.writers[k], RV: w.RV, Type: w.Type,
	}
	var before, after []string
	versions := i.versions[w.UID]
	if at := slices.Index(versions, k); at > 0 {
		before = yamlLines(i.records[versions[at-1]].Write.Object)
	}
	if w.Type != history.Deleted {
		after = yamlLines(w.Object)
	} else if before == nil {
		before = yamlLines(w.Object)
	}
	c.Lines = diff(before, after)
	c.Set, c.Cleared = i.flipped(k, w)
	return c
}

// yamlLines shows an object. The fields that every write changes stay.
func yamlLines(object json.RawMessage) []string {
	text, err := yaml.JSONToYAML(object)
	if err != nil {
		return []string{"(this object cannot be read)"}
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(lines) > linesMax {
		lines = append(lines[:linesMax:linesMax], "(and more)")
	}
	return lines
}

// flipped lists the addresses whose bit the write changed.
func (i *index) flipped(k int, w *history.Write) (set, cleared []string) {
	kind, ok := danm.NetworkKindOf(w.Resource)
	if !ok {
		return nil, nil
	}
	ref := danm.NetworkRef{Kind: kind, Namespace: w.Namespace, Name: w.Name}
	for key, flips := range i.flips {
		for _, f := range flips {
			switch {
			case key.network != ref || f.record != k:
			case f.set:
				set = append(set, key.address.String())
			default:
				cleared = append(cleared, key.address.String())
			}
		}
	}
	slices.Sort(set)
	slices.Sort(cleared)
	return set, cleared
}

// diff aligns two texts by their longest common subsequence of lines.
func diff(before, after []string) []Line {
	common := commonLengths(before, after)
	var out []Line
	i, j := 0, 0
	for i < len(before) || j < len(after) {
		switch {
		case i < len(before) && j < len(after) && before[i] == after[j]:
			out = append(out, Line{' ', before[i]})
			i, j = i+1, j+1
		case j == len(after) || i < len(before) && common[i+1][j] >= common[i][j+1]:
			out = append(out, Line{'-', before[i]})
			i++
		default:
			out = append(out, Line{'+', after[j]})
			j++
		}
	}
	return out
}

// commonLengths[i][j] is how many lines the ends from i and j have in common.
func commonLengths(a, b []string) [][]int {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}
