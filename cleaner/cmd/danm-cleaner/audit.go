package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danm-chaos/danm-chaos/cleaner"
	"github.com/danm-chaos/danm-chaos/cleaner/audit"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// Exit codes of audit and explain.
const (
	exitInconsistent = 1
	exitIncomplete   = 2
)

// confirmDefault is how long an ADD or a DEL that the first look caught
// halfway usually takes.
const confirmDefault = 5 * time.Second

// exitCode ends the program with a code after everything has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// accessFlags are the controller's flags that audit and explain share.
func accessFlags() []string {
	return []string{"kubeconfig", "danm-api", "release-quarantine", "orphan-quarantine", "completed-allowance",
		"fencing", "kube-api-qps", "kube-api-burst", "verbosity"}
}

// registerAccess adds those flags, with the controller's defaults.
func (f *flags) registerAccess(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.register(all)
	for _, name := range accessFlags() {
		fs.AddFlag(all.Lookup(name))
	}
}

// accessConfig is the controller's configuration for one look. Its log lines
// are shown only when it heals something.
func (f *flags) accessConfig(stderr io.Writer) (cleaner.Config, error) {
	cfg, err := f.config()
	if err != nil {
		return cfg, err
	}
	if cfg.REST, err = f.restConfig(); err != nil {
		return cfg, err
	}
	cfg.Logger = logger(stderr, f.verbosity)
	return cfg, nil
}

// auditCommand compares and, if asked to, heals.
type auditCommand struct {
	flags
	json, fix, yes, allocations bool
	confirm                     time.Duration
	stdout, stderr              io.Writer
}

func newAuditCommand(stdout, stderr io.Writer) *cobra.Command {
	a := &auditCommand{stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare pods, endpoints and allocated addresses: exit 0 consistent, 1 not, 2 could not read everything",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unexpected argument %q", args[0])}
			}
			return a.run(cmd)
		},
	}
	fs := cmd.Flags()
	a.registerAccess(fs)
	fs.BoolVar(&a.json, "json", false, "print JSON, with schemaVersion")
	fs.BoolVar(&a.allocations, "allocations", false, "list every address with endpoint, pod and node")
	fs.BoolVar(&a.fix, "fix", false, "heal what a cleaner heals, and nothing that is not shown first; takes both quarantines")
	fs.BoolVar(&a.yes, "yes", false, "with --fix, do not ask")
	fs.DurationVar(&a.confirm, "confirm", confirmDefault, "look again after this long at what seems wrong, since a CNI ADD or DEL may be under way; 0 looks once")
	return cmd
}

func (a *auditCommand) run(cmd *cobra.Command) error {
	if a.yes && !a.fix || a.confirm < 0 {
		return usageError{errors.New("--yes needs --fix, and --confirm must not be negative")}
	}
	if a.fix && a.json && !a.yes {
		return usageError{errors.New("--fix --json cannot ask, so it needs --yes")}
	}
	cfg, err := a.accessConfig(a.stderr)
	if err != nil {
		return err
	}
	r, err := a.look(cmd, cfg)
	if err != nil {
		return err
	}
	if a.fix && r.Complete && len(r.With(audit.Fixable)) > 0 {
		return a.heal(cmd, cfg, r)
	}
	return a.conclude(r)
}

func (a *auditCommand) look(cmd *cobra.Command, cfg cleaner.Config) (audit.Report, error) {
	w, r, err := cleaner.Audit(cmd.Context(), cfg, a.confirm)
	if err != nil {
		return r, incompleteError(a.stderr, err)
	}
	if a.allocations {
		r.Allocations = audit.Allocations(w, ownership.Policy{
			Quarantine: cfg.ReleaseQuarantine, CompletedAllowance: cfg.CompletedAllowance, Fencing: cfg.Fencing})
	}
	return r, nil
}

// incompleteError says what failed; an audit that failed knows nothing, which
// must not look like an inconsistency.
func incompleteError(stderr io.Writer, err error) error {
	fmt.Fprintf(stderr, "danm-cleaner: %v\n", err)
	return exitCode(exitIncomplete)
}

// conclude prints the report and chooses the exit code.
func (a *auditCommand) conclude(r audit.Report) error {
	if err := a.print(a.stdout, r); err != nil {
		return incompleteError(a.stderr, err)
	}
	switch {
	case !r.Complete:
		return exitCode(exitIncomplete)
	case !r.Consistent:
		return exitCode(exitInconsistent)
	}
	return nil
}

func (a *auditCommand) print(out io.Writer, r audit.Report) error {
	if a.json {
		return printJSON(out, r)
	}
	return r.Text(out)
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// heal shows what is wrong, asks, lets the controller heal exactly that, and
// reports what is there afterwards.
func (a *auditCommand) heal(cmd *cobra.Command, cfg cleaner.Config, r audit.Report) error {
	if err := r.Text(a.stderr); err != nil {
		return incompleteError(a.stderr, err)
	}
	if !a.yes && !agrees(cmd.InOrStdin(), a.stderr, len(r.With(audit.Fixable))) {
		fmt.Fprintln(a.stderr, "nothing was changed")
		return exitCode(exitInconsistent)
	}
	fmt.Fprintf(a.stderr, "healing; endpoints go after %s, addresses without endpoint after %s\n", cfg.ReleaseQuarantine, cfg.OrphanQuarantine)
	err := cleaner.Fix(cmd.Context(), cfg, r, func(p cleaner.Progress) {
		fmt.Fprintf(a.stderr, "%d left to heal, giving up in %s\n", p.Remaining, p.Left.Round(time.Second))
	})
	if err != nil {
		fmt.Fprintf(a.stderr, "danm-cleaner: %v\n", err)
	}
	after, lookErr := a.look(cmd, cfg)
	if lookErr != nil {
		return lookErr
	}
	return a.conclude(after)
}

// agrees asks on a terminal; an input that has ended is a no.
func agrees(in io.Reader, out io.Writer, findings int) bool {
	fmt.Fprintf(out, "heal these %d findings? [y/N] ", findings)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// explainCommand says why something is held or would be released.
type explainCommand struct {
	flags
	json           bool
	namespace      string
	stdout, stderr io.Writer
}

func newExplainCommand(stdout, stderr io.Writer) *cobra.Command {
	e := &explainCommand{stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "explain (ep|pod|ip) [NAMESPACE/]NAME",
		Short: "Say why an address is held or would be released: evidence, quarantine, node, resourceVersions",
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return e.run(cmd, args) },
	}
	e.registerAccess(cmd.Flags())
	cmd.Flags().BoolVar(&e.json, "json", false, "print JSON, with schemaVersion")
	cmd.Flags().StringVarP(&e.namespace, "namespace", "n", "default", "namespace of a NAME without one")
	return cmd
}

func (e *explainCommand) run(cmd *cobra.Command, args []string) error {
	explain, err := e.question(args)
	if err != nil {
		return usageError{err}
	}
	cfg, err := e.accessConfig(e.stderr)
	if err != nil {
		return err
	}
	w, err := cleaner.Observe(cmd.Context(), cfg)
	if err != nil {
		return incompleteError(e.stderr, err)
	}
	explanation, err := explain(w, ownership.Policy{
		Quarantine: cfg.ReleaseQuarantine, CompletedAllowance: cfg.CompletedAllowance, Fencing: cfg.Fencing})
	if err != nil && explanation.Complete {
		return err
	}
	return e.conclude(explanation)
}

func (e *explainCommand) conclude(explanation audit.Explanation) error {
	show := explanation.Text
	if e.json {
		show = func(out io.Writer) error { return printJSON(out, explanation) }
	}
	if err := show(e.stdout); err != nil {
		return incompleteError(e.stderr, err)
	}
	if !explanation.Complete {
		return exitCode(exitIncomplete)
	}
	return nil
}

// question understands the arguments.
func (e *explainCommand) question(args []string) (func(audit.World, ownership.Policy) (audit.Explanation, error), error) {
	if len(args) != 2 {
		return nil, errors.New("explain takes ep, pod or ip, and a name")
	}
	namespace, name, ok := strings.Cut(args[1], "/")
	if !ok {
		namespace, name = e.namespace, args[1]
	}
	switch args[0] {
	case "ep":
		return func(w audit.World, p ownership.Policy) (audit.Explanation, error) {
			return audit.ExplainEndpoint(w, p, namespace, name)
		}, nil
	case "pod":
		return func(w audit.World, p ownership.Policy) (audit.Explanation, error) {
			return audit.ExplainPod(w, p, namespace, name)
		}, nil
	case "ip":
		addr, err := netip.ParseAddr(args[1])
		return func(w audit.World, p ownership.Policy) (audit.Explanation, error) {
			return audit.ExplainAddress(w, p, addr)
		}, err
	}
	return nil, fmt.Errorf("cannot explain a %q: use ep, pod or ip", args[0])
}
