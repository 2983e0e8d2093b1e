package netplugin

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/go-logr/logr"
)

// Versions are those of the CNI specification that the plugin speaks.
var Versions = version.PluginSupports("0.4.0", "1.0.0", "1.1.0")

// Funcs returns the commands for skel.
func Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add:    command("ADD", (*call).add),
		Check:  command("CHECK", (*call).check),
		Del:    command("DEL", (*call).del),
		GC:     command("GC", (*call).gc),
		Status: command("STATUS", (*call).status),
	}
}

// call is one command under way.
type call struct {
	config  Config
	args    *skel.CmdArgs
	pod     podArgs
	plugins plugins
	log     logr.Logger
	out     io.Writer // for the result
}

// podArgs are the CNI_ARGS that a kubelet's runtime sets.
type podArgs struct{ namespace, pod, uid string }

func (p podArgs) name() string { return p.namespace + "/" + p.pod }

// parseArgs reads CNI_ARGS, "key=value;key=value". Keys that we do not know are
// the business of those we delegate to.
func parseArgs(text string) (podArgs, error) {
	values := map[string]string{}
	for _, pair := range strings.Split(text, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok && pair != "" {
			return podArgs{}, types.NewError(types.ErrInvalidEnvironmentVariables, "reading CNI_ARGS", fmt.Sprintf("%q is not key=value", pair))
		}
		values[key] = value
	}
	return podArgs{values["K8S_POD_NAMESPACE"], values["K8S_POD_NAME"], values["K8S_POD_UID"]}, nil
}

// command frames a command: configuration, time limit and one line of log.
func command(name string, do func(*call, context.Context) error) func(*skel.CmdArgs) error {
	return func(args *skel.CmdArgs) error {
		c, closeLog, err := newCall(args)
		if err != nil {
			return err
		}
		defer closeLog()
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Duration(c.config.Timeout),
			fmt.Errorf("%s took longer than %s: %w", name, time.Duration(c.config.Timeout), context.DeadlineExceeded))
		defer cancel()
		begin := time.Now()
		err = do(c, ctx)
		c.report(name, time.Since(begin), err)
		return err
	}
}

func newCall(args *skel.CmdArgs) (*call, func(), error) {
	config, err := parseConfig(args.StdinData)
	if err != nil {
		return nil, nil, err
	}
	c := &call{config: config, args: args, out: os.Stdout}
	if c.pod, err = parseArgs(args.Args); err != nil {
		return nil, nil, err
	}
	c.plugins = plugins{
		exec: &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}},
		path: args.Path, containerID: args.ContainerID, netns: args.Netns, args: args.Args,
	}
	var closeLog func()
	c.log, closeLog = openLog(config.LogFile)
	return c, closeLog, nil
}

// openLog returns a logger for the file. A file that cannot be written must not
// keep pods from their network, so it is only complained about.
func openLog(path string) (logr.Logger, func()) {
	if path == "" {
		return logr.Discard(), func() {}
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintf(os.Stderr, "danm-cni: opening the log: %v\n", err)
		return logr.Discard(), func() {}
	}
	return newLogger(file), func() { file.Close() }
}

// logLevelAll lets V(1) through, which is what package danmcni uses for what
// DANM swallows.
const logLevelAll = slog.Level(-1)

func newLogger(w io.Writer) logr.Logger {
	return logr.FromSlogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: logLevelAll}))
}

func (c *call) report(name string, took time.Duration, err error) {
	keys := []any{"command", name, "took", took.Round(time.Millisecond).String()}
	if c.args.ContainerID != "" {
		keys = append(keys, "containerID", c.args.ContainerID, "pod", c.pod.name())
	}
	if err != nil {
		c.log.Error(err, "command failed", keys...)
		return
	}
	c.log.Info("command done", keys...)
}
