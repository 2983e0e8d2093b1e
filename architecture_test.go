// Package danmchaos_test holds the rules that no single package can keep by
// itself. It has no code of its own.
package danmchaos_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/danm-chaos/danm-chaos"

// functionLinesMax is the limit of one function outside tests, signature and
// braces included.
const functionLinesMax = 70

// goPackage is one folder of Go files of the main module.
type goPackage struct {
	path  string // from the root, with slashes: "cleaner/danm"
	name  string
	files []goFile // without tests
}

type goFile struct {
	path    string
	syntax  *ast.File
	imports []string
}

func (p goPackage) isMain() bool { return p.name == "main" }

// load parses every package of the main module.
func load(t *testing.T) ([]goPackage, *token.FileSet) {
	t.Helper()
	positions := token.NewFileSet()
	byPath := map[string]*goPackage{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && isForeign(name):
			return filepath.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		return add(byPath, positions, filepath.ToSlash(name))
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []goPackage
	for _, p := range byPath {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b goPackage) int { return strings.Compare(a.path, b.path) })
	if len(all) < 10 {
		t.Fatalf("found only %d packages: the test looks in the wrong place", len(all))
	}
	return all, positions
}

// isForeign tells whether the folder is no part of the main module's source.
func isForeign(dir string) bool {
	if dir == "." {
		return false
	}
	base := filepath.Base(dir)
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil || strings.HasPrefix(base, ".") || base == "testdata" || dir == "bin" || dir == "out"
}

func add(byPath map[string]*goPackage, positions *token.FileSet, name string) error {
	dir := path.Dir(name)
	if byPath[dir] == nil {
		byPath[dir] = &goPackage{path: dir}
	}
	p := byPath[dir]
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	syntax, err := parser.ParseFile(positions, name, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	f := goFile{path: name, syntax: syntax}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		f.imports = append(f.imports, imported)
	}
	p.name = syntax.Name.Name
	p.files = append(p.files, f)
	return nil
}

// isWithin tells whether path is the folder or below it.
func isWithin(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// rule forbids an import. A package is "from" if it is that folder; "from/..."
// takes what is below it too. Mains wire, so no rule of the "/..." kind binds
// them.
type rule struct {
	from   string
	to     func(imported string) bool
	what   string
	reason string
}

func (r rule) binds(p goPackage) bool {
	if folder, ok := strings.CutSuffix(r.from, "/..."); ok {
		return !p.isMain() && (folder == "" || isWithin(p.path, folder))
	}
	return p.path == r.from
}

// ours matches the module's packages, but for the allowed ones.
func ours(allowed ...string) func(string) bool {
	return func(imported string) bool {
		own, ok := strings.CutPrefix(imported, module+"/")
		return ok && !slices.Contains(allowed, own)
	}
}

// below matches the module's packages at or below the folders.
func below(folders ...string) func(string) bool {
	return func(imported string) bool {
		own, ok := strings.CutPrefix(imported, module+"/")
		return ok && slices.ContainsFunc(folders, func(f string) bool { return isWithin(own, f) })
	}
}

// exactly matches the module's packages by their whole path.
func exactly(packages ...string) func(string) bool {
	return func(imported string) bool {
		own, ok := strings.CutPrefix(imported, module+"/")
		return ok && slices.Contains(packages, own)
	}
}

// anyOf matches paths at or below the given ones, of any module.
func anyOf(paths ...string) func(string) bool {
	return func(imported string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { return isWithin(imported, p) })
	}
}

func oneCluster(imported string) bool {
	own, ok := strings.CutPrefix(imported, module+"/")
	return ok && strings.HasPrefix(own, "clusters/")
}

func rules() []rule {
	const leaf = "it is arithmetic and formats that everything else stands on; whatever it imported, both judge and judged would share"
	return []rule{
		{"cleaner/danm", ours(), "any package of ours", leaf},
		{"cleaner/ipam", ours(), "any package of ours", leaf},
		{"harness/history", ours(), "any package of ours", leaf},
		{"harness/schedule", ours(), "any package of ours", "a schedule is data, which replay and shrink must read without a cluster"},
		{"cleaner/ownership", ours(), "any package of ours", "the decision is a function of values"},
		{"cleaner/audit", ours("cleaner/danm", "cleaner/ipam", "cleaner/ownership"), "anything of ours but danm, ipam and ownership", "the comparison is a function of one look; the controller reads and writes"},
		{"cleaner/ownership", anyOf("context", "log", "log/slog", "os", "net", "sync", "k8s.io/client-go", "k8s.io/utils/clock", "k8s.io/klog", "github.com/go-logr"),
			"a client, clock, context or logger", "without them every race is a row in a table test"},
		{"harness/check", ours("harness/history", "cleaner/danm", "cleaner/ipam"), "anything of ours but history, danm and ipam",
			"a checker that shares the rule it checks cannot find it wrong"},
		{"harness/canary", exactly("cleaner", "cleaner/ownership"), "the cleaner that ships", "a canary that uses the right code may turn out right"},
		{"cleaner/...", below("harness", "clusters", "reports", "scenarios"), "the harness", "the cleaner ships without it"},
		{"clusters/...", below("harness/check", "reports", "scenarios"), "checkers and reports", "a cluster carries out, it does not judge"},
		{"harness/...", oneCluster, "one kind of cluster", "the same scenario runs on every kind; only the mains wire"},
		{"harness/...", below("reports"), "reports", "only the mains render"},
		{"scenarios/...", below("reports"), "reports", "only the mains render"},
		{"/...", anyOf("k8s.io/kubernetes"), "Kubernetes itself", "its replace directives must not reach this module; its programs are built in clusters/tools"},
	}
}

func TestImportsPointOneWay(t *testing.T) {
	packages, _ := load(t)
	for _, r := range rules() {
		bound := 0
		for _, p := range packages {
			if !r.binds(p) {
				continue
			}
			bound++
			for _, f := range p.files {
				for _, imported := range f.imports {
					if r.to(imported) {
						t.Errorf("%s imports %s\n\t%s must not import %s: %s", f.path, imported, r.from, r.what, r.reason)
					}
				}
			}
		}
		if bound == 0 {
			t.Errorf("the rule for %s binds no package: is it still called that?", r.from)
		}
	}
}

func TestEveryPackageHasOnePackageComment(t *testing.T) {
	packages, _ := load(t)
	for _, p := range packages {
		var with []string
		for _, f := range p.files {
			if f.syntax.Doc != nil {
				with = append(with, f.path)
			}
		}
		if len(p.files) > 0 && len(with) != 1 {
			t.Errorf("package %s has %d package comments %v, want one that states its duty and what it refuses", p.path, len(with), with)
		}
	}
}

func TestFoldersAreNamedAfterADuty(t *testing.T) {
	top := []string{".", "cleaner", "clusters", "harness", "scenarios", "reports"}
	packages, _ := load(t)
	for _, p := range packages {
		first, _, _ := strings.Cut(p.path, "/")
		if !slices.Contains(top, first) {
			t.Errorf("%s: the top-level folders are %v", p.path, top[1:])
		}
		for _, word := range strings.Split(p.path, "/") {
			if slices.Contains([]string{"pkg", "util", "utils", "common", "helper", "helpers", "misc"}, word) {
				t.Errorf("%s: %q says nothing about what is in it", p.path, word)
			}
		}
	}
}

func TestFunctionsFitOnAScreen(t *testing.T) {
	packages, positions := load(t)
	for _, p := range packages {
		for _, f := range p.files {
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				begin, end := positions.Position(fn.Pos()), positions.Position(fn.End())
				if n := end.Line - begin.Line + 1; n > functionLinesMax {
					t.Errorf("%s: %s has %d lines, the limit is %d", begin, fn.Name.Name, n, functionLinesMax)
				}
			}
		}
	}
}

// banned are calls that do something behind the caller's back.
var banned = []struct {
	call   string
	binds  func(goPackage) bool
	reason string
}{
	{"os.Exit", isLibrary, "only a main may end the process"},
	{"log.Fatal", isLibrary, "only a main may end the process"},
	{"log.Fatalf", isLibrary, "only a main may end the process"},
	{"klog.Fatal", isLibrary, "only a main may end the process"},
	{"time.Now", isPure, "the caller brings the time, so that a run can be repeated"},
	{"time.Since", isPure, "the caller brings the time, so that a run can be repeated"},
	{"time.Sleep", isLibrary, "a wait has a condition, a bound and a context"},
}

func isLibrary(p goPackage) bool { return !p.isMain() }

func isPure(p goPackage) bool {
	return slices.Contains([]string{"cleaner/ipam", "cleaner/danm", "cleaner/ownership", "cleaner/audit", "harness/schedule", "harness/check"}, p.path)
}

func TestLibrariesLeaveTheProcessToItsMain(t *testing.T) {
	packages, positions := load(t)
	for _, p := range packages {
		for _, f := range p.files {
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				for _, b := range banned {
					if b.binds(p) && isSelector(n, b.call) {
						t.Errorf("%s: %s: %s", positions.Position(n.Pos()), b.call, b.reason)
					}
				}
				return true
			})
		}
	}
}

func isSelector(n ast.Node, call string) bool {
	selector, ok := n.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	left, ok := selector.X.(*ast.Ident)
	return ok && left.Name+"."+selector.Sel.Name == call
}
