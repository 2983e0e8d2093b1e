// Command danm-cni is a CNI plugin that attaches pods as DANM does. It keeps no
// process on the node and configures no interface by itself.
package main

import (
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/danm-chaos/danm-chaos/clusters/danmcni/netplugin"
)

func main() { os.Exit(run()) }

// run executes the command of CNI_COMMAND. Errors go to stdout as the
// specification has it.
func run() int {
	failure := skel.PluginMainFuncsWithError(netplugin.Funcs(), netplugin.Versions,
		"danm-cni attaches pods as DANM does; a container runtime calls it")
	if failure == nil {
		return 0
	}
	if err := failure.Print(); err != nil {
		fmt.Fprintf(os.Stderr, "danm-cni: printing an error: %v\n", err)
	}
	return 1
}
