package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/fleet"
	"github.com/vprof/vprof/internal/printable"
)

// fleetScreen shows the tasks of all GPUs, one line each: redrawn on a terminal, elsewhere one line for each change.
type fleetScreen struct {
	app   *app
	lines int
	last  string
}

func (s *fleetScreen) show(status *fleet.Status) {
	text := fleetText(status)
	if s.app.quiet || text == s.last {
		return
	}
	if terminal(s.app.stderr) && s.lines > 0 {
		printable.Fprintf(s.app.stderr, "\x1b[%dA\x1b[J", s.lines)
	}
	printable.Fprintf(s.app.stderr, "%s", text)
	s.lines, s.last = strings.Count(text, "\n"), text
}

// fleetText returns a line for each GPU.
func fleetText(s *fleet.Status) string {
	var b strings.Builder
	for _, gpu := range s.GPUs {
		fmt.Fprintf(&b, "%-16s %d of %d jobs, %d of %d tasks done", gpu.GPU, gpu.Done, gpu.Jobs,
			gpu.WholeShards, gpu.Tasks)
		if gpu.Running > 0 {
			fmt.Fprintf(&b, ", %d running", gpu.Running)
		}
		for _, word := range slices.Sorted(maps.Keys(gpu.States)) {
			if word != fleet.RunningState {
				fmt.Fprintf(&b, ", %d %s", gpu.States[word], word)
			}
		}
		if n := len(gpu.Failed); n > 0 {
			fmt.Fprintf(&b, ", %d failed (%s)", n, gpu.Failed[n-1].Failure.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func writeFleetStatus(a *app, s *fleet.Status, format string) error {
	if format == "json" {
		e := json.NewEncoder(a.stdout)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	printable.Fprintf(a.stdout, "%s", fleetText(s))
	for _, b := range s.GPUs {
		for _, f := range b.Failed {
			printable.Fprintf(a.stdout, "%s: %s\n", b.GPU, f)
		}
	}
	return nil
}
