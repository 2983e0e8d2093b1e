// Command danm-cleaner releases the addresses that dead pods left behind in
// DANM networks. It only wires: flags, signals, health and metrics servers; all
// decisions are in package cleaner.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 64
)

// gcPercent keeps the heap within one and a half times of what is in use: the
// cleaner's caches are large and rarely change, so that memory is dear here and
// collections are not. GOGC in the environment overrides it.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// usageError is a mistake on the command line.
type usageError struct{ error }

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newCommand(stdout, stderr)
	root.SetArgs(withUpstreamSpelling(args))
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage usageError
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintf(stderr, "danm-cleaner: %v (see danm-cleaner --help)\n", err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "danm-cleaner: %v\n", err)
		return exitError
	}
}

// withUpstreamSpelling accepts the one flag of the upstream cleaner as it is
// written there, with a single dash.
func withUpstreamSpelling(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		name, value, hasValue := strings.Cut(a, "=")
		if name == "-kubeconf" || name == "--kubeconf" {
			a = "--kubeconfig"
			if hasValue {
				a += "=" + value
			}
		}
		out[i] = a
	}
	return out
}

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var f flags
	serve := func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError{fmt.Errorf("unexpected argument %q", args[0])}
		}
		return f.run(cmd.Context(), stderr)
	}
	root := &cobra.Command{
		Use:           "danm-cleaner",
		Short:         "Releases the addresses that dead pods left behind in DANM networks, and never a live pod's",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          serve,
	}
	runCommand := &cobra.Command{
		Use:   "run",
		Short: "Run the controller (the default)",
		Args:  cobra.ArbitraryArgs,
		RunE:  serve,
	}
	for _, c := range []*cobra.Command{root, runCommand} {
		f.register(c.Flags())
		c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	}
	root.AddCommand(runCommand)
	for _, c := range []*cobra.Command{newAuditCommand(stdout, stderr), newExplainCommand(stdout, stderr)} {
		c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
		root.AddCommand(c)
	}
	root.CompletionOptions.DisableDefaultCmd = true
	return root
}

// logger writes structured lines to w; verbosity 1 adds what is only of use
// when something is being investigated. Libraries log through it as well.
func logger(w io.Writer, verbosity int) klog.Logger {
	l := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(w), textlogger.Verbosity(verbosity)))
	klog.SetLogger(l)
	return l
}

// identity tells this replica from the others.
func identity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding a name for this replica: %w", err)
	}
	return fmt.Sprintf("%s_%d", host, os.Getpid()), nil
}
