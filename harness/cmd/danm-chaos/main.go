//go:debug randseednop=0

// Command danm-chaos breaks clusters under a DANM cleaner and judges what the
// cleaner did. It only wires: flags, signals, run directories and output. All
// judgement is in package check, all rendering in package reports.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/harness/check"
)

// Exit codes. They are part of the command line's contract.
const (
	exitValid      = 0
	exitInvalid    = 1  // an invariant was violated
	exitUnknown    = 2  // inconclusive, interrupted, or the cluster did not come up
	exitUnclean    = 3  // judged Valid, but something of the run is left on the machine
	exitUsage      = 64 // the command line is wrong
	exitHarnessBug = 70
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// usageError is a mistake on the command line. Its text is one line: the thing,
// the reason, the cure.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError ends the program with a code after everything was said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitWith returns nil for the code of success.
func exitWith(code int) error {
	if code == exitValid {
		return nil
	}
	return exitError(code)
}

// app is what the commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	defer func() {
		if bug := recover(); bug != nil {
			fmt.Fprintf(stderr, "danm-chaos: bug in the harness: %v\n%s", bug, debug.Stack())
			code = exitHarnessBug
		}
	}()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return a.exitCode(root.ExecuteContext(ctx))
}

func (a *app) exitCode(err error) int {
	var usage usageError
	var exit exitError
	switch {
	case err == nil:
		return exitValid
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		fmt.Fprintf(a.stderr, "danm-chaos: %s\n", firstLine(err.Error()))
		return exitUsage
	default:
		fmt.Fprintf(a.stderr, "danm-chaos: %v\n", err)
		return exitUnknown
	}
}

// firstLine drops what cobra adds to an unknown command.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "danm-chaos",
		Short: "Breaks clusters under a DANM cleaner and judges what the cleaner did",
		Long: `Breaks clusters under a DANM cleaner and judges what the cleaner did.

Exit codes: 0 valid, 1 an invariant was violated, 2 inconclusive or interrupted,
3 cleanup incomplete, 64 wrong command line, 70 bug in the harness.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", err, c.CommandPath())
	})
	root.AddCommand(a.listCommand(), a.runCommand(), a.replayCommand(), a.shrinkCommand(), a.reportCommand(), a.compareCommand(), a.canariesCommand(),
		a.cleanCommand(), a.doctorCommand(), a.programsCommand(), a.versionCommand(), a.canaryCommand(), a.simulateCommand(), a.stressCommand(), a.fleetCommand(), a.shardCommand())
	return root
}

// takes limits the arguments of a command, with an error in one line.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least {
			return usagef("%s: %s is missing (see %s --help)", c.Name(), what, c.CommandPath())
		}
		if most >= 0 && len(args) > most {
			return usagef("%s: unexpected argument %q (see %s --help)", c.Name(), args[most], c.CommandPath())
		}
		return nil
	}
}

// codeOf maps a verdict to the exit code. What is not known to be Valid is not.
func codeOf(v check.Verdict) int {
	switch v {
	case check.Valid:
		return exitValid
	case check.Invalid:
		return exitInvalid
	default:
		return exitUnknown
	}
}

// worse returns the code that says more about two runs: a bug first, then a
// violation, then whatever kept a run from being judged.
func worse(a, b int) int {
	for _, code := range []int{exitHarnessBug, exitInvalid, exitUnknown, exitUnclean} {
		if a == code || b == code {
			return code
		}
	}
	return exitValid
}
