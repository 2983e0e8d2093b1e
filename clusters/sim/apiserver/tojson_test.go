package apiserver

import (
	"encoding/json"
	"testing"

	k8sjson "k8s.io/apimachinery/pkg/util/json"
)

func FuzzObjectsAreEncodedAsEncodingJSONDoes(f *testing.F) {
	for _, seed := range []string{
		`{"b":1,"a":[true,null,"x",-7,1.5,{"c":{}}]}`, `"a\"b\\c<&>\u2028\u0000é"`, `{"<":"` + "\x7f" + `"}`, `1e99`, `[]`, `[[],{}]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var value any
		if k8sjson.Unmarshal([]byte(text), &value) != nil {
			return
		}
		want, err := json.Marshal(value)
		if err != nil {
			return
		}
		if got := appendJSON(nil, value); string(got) != string(want) {
			t.Errorf("encoded %s as %s", want, got)
		}
	})
}
