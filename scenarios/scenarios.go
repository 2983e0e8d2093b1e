package scenarios

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/danm-chaos/danm-chaos/harness"
)

//go:embed *.yaml
var files embed.FS

// All returns the shipped scenarios in name order.
func All() []harness.Scenario {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("scenarios: %v", err)) // the files are part of the program
	}
	var all []harness.Scenario
	for _, entry := range entries {
		all = append(all, mustRead(entry.Name()))
	}
	slices.SortFunc(all, func(a, b harness.Scenario) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func mustRead(file string) harness.Scenario {
	data, err := files.ReadFile(file)
	if err != nil {
		panic(fmt.Sprintf("scenarios: %v", err))
	}
	s, err := harness.DecodeScenario(file, data)
	if err != nil {
		panic(fmt.Sprintf("scenarios: %v", err))
	}
	return s
}

// Names returns the names of the shipped scenarios in order.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// Get returns the scenario of that name, or an error that lists the known ones.
func Get(name string) (harness.Scenario, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return harness.Scenario{}, fmt.Errorf("unknown scenario %q: known are %s", name, strings.Join(Names(), ", "))
}
