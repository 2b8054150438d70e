package cli

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
)

// version is the output of "vprof version".
type version struct {
	Schema   string `json:"schema"`
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() version {
	v := version{
		Schema: "vprof.version/v1", Version: "devel", Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// addProvenance records the tool, the machine and the time in a report.
func (a *app) addProvenance(r *report.Report, started time.Time) {
	r.Tool = vprofTool()
	r.Started = started.Truncate(time.Second)
	r.SetMeasured(hostName(), a.now().UTC().Truncate(time.Second))
}

// hostName returns the name of this machine in results: the scheduler's name of the node, if there
// is one, since containers have their own names. It is empty for an unknown machine.
func hostName() string {
	name, _ := os.Hostname()
	return cmp.Or(os.Getenv("VPROF_NODE"), os.Getenv("SLURMD_NODENAME"), name)
}

func vprofTool() report.Tool {
	v := buildVersion()
	return report.Tool{Version: v.Version, Commit: v.Commit}
}

func newVersionCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version of vprof", Args: noArgs}
	return (&output{app: a}).showDocument(cmd, func([]string) (report.Document, error) { return buildVersion(), nil })
}

// Sheets returns the tables to print, for [report.Document].
func (v version) Sheets() []report.Sheet {
	line := "vprof " + v.Version
	if v.Commit != "" {
		line += " (" + v.Commit
		if v.Modified {
			line += ", modified"
		}
		line += ")"
	}
	return []report.Sheet{{Notes: []string{fmt.Sprintf("%s %s %s", line, v.Go, v.Platform)}}}
}

// Data returns the values that JSON output holds, for [report.Document].
func (v version) Data() report.Data {
	return report.Data{Lines: []any{v}, CSV: report.Rows("version commit modified go platform", []version{v})}
}
