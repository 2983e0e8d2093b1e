package ocispec

import (
	"path/filepath"
	"slices"
	"strings"
)

// Edit is one file that has to be changed before the runtime reads it.
type Edit struct {
	Path  string
	Relax func([]byte) ([]byte, error)
}

// globalWithValue are runc's options before the command that take a value, so
// that a value is not taken for the command.
var globalWithValue = []string{"--root", "--log", "--log-format", "--criu", "--rootless"}

// EditFor returns what a command line of runc (without the program) makes it
// start, and whether it starts anything at all. Paths are as the command line
// has them, relative to the working directory.
func EditFor(args []string) (Edit, bool) {
	i := commandIndex(args)
	if i == len(args) {
		return Edit{}, false
	}
	rest := args[i+1:]
	switch args[i] {
	case "create", "run", "restore":
		return Edit{Path: filepath.Join(option(rest, "--bundle", "-b"), "config.json"), Relax: RelaxBundle}, true
	case "exec":
		path := option(rest, "--process", "-p")
		return Edit{Path: path, Relax: RelaxProcess}, path != ""
	}
	return Edit{}, false
}

func commandIndex(args []string) int {
	for i := 0; i < len(args); i++ {
		switch {
		case slices.Contains(globalWithValue, args[i]):
			i++
		case !strings.HasPrefix(args[i], "-"):
			return i
		}
	}
	return len(args)
}

// option returns the value of an option in either spelling, with or without
// an equals sign; empty if it is not there.
func option(args []string, names ...string) string {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if !slices.Contains(names, name) {
			continue
		}
		if joined {
			return value
		}
		if i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}
