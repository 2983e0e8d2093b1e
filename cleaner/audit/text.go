package audit

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Text writes the report for a reader.
func (r Report) Text(out io.Writer) error {
	var b strings.Builder
	r.writeRows(&b)
	for _, s := range []struct {
		severity Severity
		title    string
	}{
		{Fixable, "a cleaner heals these"}, {Attention, "these need somebody"}, {Note, "for information"},
	} {
		writeFindings(&b, s.title, r.With(s.severity))
	}
	if len(r.Allocations) > 0 {
		b.WriteString("\n")
		r.writeAllocations(&b)
	}
	b.WriteString("\n" + r.conclusion() + "\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func (r Report) writeRows(out io.Writer) {
	if len(r.Networks) == 0 {
		fmt.Fprintln(out, "no network with a bitmap")
		return
	}
	t := table(out)
	fmt.Fprintln(t, "NETWORK\tFAMILY\tSIZE\tIN USE\tFREE\tLEAKED\tORPHAN\tMISSING\tDUPLICATE\tHELD\tRESERVEDIP")
	for _, row := range r.Networks {
		fmt.Fprintf(t, "%s\tIPv%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", row.Network, row.Family, row.Size, row.InUse, row.Free,
			row.LeakedEndpoints, row.OrphanBits, row.MissingBits, row.Duplicates, row.Held, row.ReservedIPs)
	}
	_ = t.Flush() // into a builder, which never fails
}

func table(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// writeFindings gives each finding one line for what it is about and one for
// why, so that neither outgrows a terminal.
func writeFindings(out io.Writer, title string, findings []Finding) {
	if len(findings) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%d to report, %s:\n", len(findings), title)
	for _, f := range findings {
		parts := []string{string(f.Kind)}
		if f.Address != "" {
			parts = append(parts, f.Address)
		}
		if f.Network != nil {
			parts = append(parts, f.Network.String())
		}
		if f.Endpoint != "" {
			parts = append(parts, "DanmEp "+f.Endpoint)
		}
		fmt.Fprintf(out, "  %s\n      %s", strings.Join(parts, "  "), f.Detail)
		if f.Reason != "" {
			fmt.Fprintf(out, " (%s)", f.Reason)
		}
		if f.Count > 1 {
			fmt.Fprintf(out, " [%d]", f.Count)
		}
		fmt.Fprintln(out)
	}
}

func (r Report) writeAllocations(out io.Writer) {
	t := table(out)
	fmt.Fprintln(t, "NETWORK\tADDRESS\tENDPOINT\tPOD\tNODE\tSTATE")
	for _, a := range r.Allocations {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", a.Network, orDash(a.Address), orDash(a.Endpoint), orDash(a.Pod), orDash(a.Node), a.State)
	}
	_ = t.Flush() // into a builder, which never fails
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (r Report) conclusion() string {
	var b strings.Builder
	for _, u := range r.Unread {
		fmt.Fprintf(&b, "could not read %s: %s\n", u.Resource, u.Cause)
	}
	if r.Frozen != "" {
		fmt.Fprintf(&b, "a cleaner would release nothing now: %s\n", r.Frozen)
	}
	figures := fmt.Sprintf("pods=%d endpoints=%d", r.Pods, r.Endpoints)
	switch {
	case !r.Complete:
		fmt.Fprintf(&b, "unknown: not everything could be read (%s)", figures)
	case r.Consistent:
		fmt.Fprintf(&b, "consistent: %s", figures)
	default:
		fmt.Fprintf(&b, "not consistent: %s", figures)
	}
	return b.String()
}

// Text writes the explanation for a reader.
func (e Explanation) Text(out io.Writer) error {
	var b strings.Builder
	for _, ep := range e.Endpoints {
		fmt.Fprintf(&b, "DanmEp %s  %s\n", ep.Endpoint, ep.Action)
		line := func(name, format string, args ...any) {
			fmt.Fprintf(&b, "  %-11s %s\n", name, fmt.Sprintf(format, args...))
		}
		line("object", "UID %s, created %s, resourceVersion %s", ep.UID, ep.Created.Format(time.RFC3339), ep.ResourceVersion)
		line("interface", "%s on %s", ep.Interface, ep.Network)
		line("owner", "pod %s, UID %s", ep.Owner, orDash(string(ep.OwnerUID)))
		line("pod found", "%s", ep.PodFound)
		line("node", "%s", ep.Node)
		if ep.Quarantine != "" {
			line("quarantine", "%s", ep.Quarantine)
		}
		line("conclusion", "%s (%s)", ep.Conclusion, ep.Reason)
	}
	for _, a := range e.Addresses {
		fmt.Fprintf(&b, "address %s  %s\n", a.Address, a.Network)
		fmt.Fprintf(&b, "  %-11s %s\n", "bit", a.Bit)
		fmt.Fprintf(&b, "  %-11s resourceVersion %s\n", "network", orDash(a.ResourceVersion))
		fmt.Fprintf(&b, "  %-11s %s\n", "endpoints", orDash(strings.Join(a.ClaimedBy, ", ")))
		fmt.Fprintf(&b, "  %-11s %s\n", "conclusion", a.Conclusion)
	}
	if e.Frozen != "" {
		fmt.Fprintf(&b, "a cleaner would release nothing now: %s\n", e.Frozen)
	}
	for _, u := range e.Unread {
		fmt.Fprintf(&b, "could not read %s: %s\n", u.Resource, u.Cause)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
