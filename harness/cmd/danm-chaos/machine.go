package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

func (a *app) cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean [RUNID]",
		Short: "End and remove what killed runs left behind, and clusters that were kept",
		Args:  takes(0, 1, ""),
		RunE: func(c *cobra.Command, args []string) error {
			id := ""
			if len(args) > 0 {
				id = args[0]
			}
			ctx, signals := catchInterrupts(c.Context(), a.stderr)
			defer signals.release()
			if err := cleanRuns(ctx, id, a.stdout); err != nil {
				fmt.Fprintf(a.stderr, "danm-chaos: cleanup incomplete: %v\n", err)
				return exitError(exitUnclean)
			}
			return nil
		},
	}
}

func (a *app) programsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "programs DIR",
		Short: "Build the control plane's programs, if need be, and link them into DIR, for KUBERNETES_BIN_DIR",
		Args:  takes(1, 1, "a folder"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, signals := catchInterrupts(c.Context(), a.stderr)
			defer signals.release()
			return controlplane.LinkPrograms(ctx, args[0], a.stderr)
		},
	}
}

func (a *app) doctorCommand() *cobra.Command {
	var cluster, image, group string
	var reach existingFlags
	var asJSON, probe bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine lacks for a kind of cluster",
		Args:  takes(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkCluster(cluster); err != nil && cluster != simCluster {
				return err
			}
			ctx, signals := catchInterrupts(c.Context(), a.stderr)
			defer signals.release()
			findings, err := a.examineFor(ctx, cluster, image, group, reach)
			if err == nil && probe {
				findings, err = a.probeExisting(ctx, cluster, findings, reach, group)
			}
			if err != nil {
				return err
			}
			print := a.printFindings
			if asJSON {
				print = func(f []controlplane.Finding) error { return a.printJSON(f) }
			}
			if err := print(findings); err != nil {
				return err
			}
			return exitWith(healthCode(findings))
		},
	}
	c.Flags().StringVar(&cluster, "cluster", defaultCluster, "kind of cluster")
	c.Flags().StringVar(&group, "danm-api", string(defaultGroup), "existing: API group of DANM's objects")
	reach.registerReach(c.Flags())
	c.Flags().StringVar(&image, "node-image", "", "kind: the node image that a run would be given")
	c.Flags().BoolVar(&probe, "probe", false, "existing: have Chaos Mesh break a pod made for it, in each way, and say which work; all is removed again")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) examineFor(ctx context.Context, cluster, image, group string, reach existingFlags) ([]controlplane.Finding, error) {
	if cluster == existingCluster {
		return a.examineExisting(ctx, reach, group)
	}
	return examine(ctx, cluster, image), nil
}

// healthCode is the code with which a run would refuse to begin.
func healthCode(findings []controlplane.Finding) int {
	for _, f := range findings {
		if !f.OK && !f.Optional {
			return exitUsage
		}
	}
	return exitValid
}

func (a *app) printFindings(findings []controlplane.Finding) error {
	out := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		state := "ok"
		switch {
		case !f.OK && f.Optional:
			state = "without"
		case !f.OK:
			state = "MISSING"
		}
		if f.Cure != "" {
			f.Detail += "; cure: " + f.Cure
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", state, f.Name, f.Detail)
	}
	return out.Flush()
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the commit and the versions that this program was built from",
		Args:  takes(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			commit, versions := buildVersions()
			return a.printJSON(struct {
				Commit   string            `json:"commit"`
				Versions map[string]string `json:"versions"`
			}{commit, versions})
		},
	}
}
