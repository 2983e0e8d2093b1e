// Package ocispec edits what a container runtime is asked to start, so that it
// starts on a host that may not hand out CAP_SYS_RESOURCE. It starts nothing,
// and it never gives a container more than was asked for, but for the right to
// be killed first.
package ocispec

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// capability is what sandboxed hosts drop from the bounding set. A runtime that
// is asked for it there fails with "unable to apply caps".
const capability = "CAP_SYS_RESOURCE"

// RelaxBundle edits the config.json of a bundle.
func RelaxBundle(config []byte) ([]byte, error) {
	return edit(config, func(spec map[string]any) {
		if process, ok := spec["process"].(map[string]any); ok {
			relax(process)
		}
	})
}

// RelaxProcess edits the file with which a process is added to a container.
func RelaxProcess(process []byte) ([]byte, error) { return edit(process, relax) }

func edit(data []byte, change func(map[string]any)) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // limits of 64 bits do not fit a float
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, fmt.Errorf("decoding the runtime's specification: %w", err)
	}
	change(object)
	out, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding the runtime's specification: %w", err)
	}
	return out, nil
}

// relax takes out the three things that need the capability: the capability
// itself, a score below that of the parent, and limits above its hard ones.
func relax(process map[string]any) {
	if sets, ok := process["capabilities"].(map[string]any); ok {
		for name, set := range sets {
			if list, ok := set.([]any); ok {
				sets[name] = without(list, capability)
			}
		}
	}
	if isNegative(process["oomScoreAdj"]) {
		process["oomScoreAdj"] = 0
	}
	delete(process, "rlimits")
}

func without(list []any, unwanted string) []any {
	out := make([]any, 0, len(list))
	for _, item := range list {
		if item != unwanted {
			out = append(out, item)
		}
	}
	return out
}

func isNegative(value any) bool {
	number, ok := value.(json.Number)
	if !ok {
		return false
	}
	n, err := number.Int64()
	return err == nil && n < 0
}
