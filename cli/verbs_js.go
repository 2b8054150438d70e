package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/observe/monitor"
)

// addVerbs adds the commands that a browser can run, which are the tools of agents, and the server of these tools.
func addVerbs(root *cobra.Command, a *app) {
	root.AddCommand(newPlanCmd(a), newFitCmd(a), newSmokeCmd(a), newTimeCmd(a), newModelsCmd(a), newGPUsCmd(a),
		newDiagnoseCmd(a), newVersionCmd(a), newMCPCmd(a))
}

// openNVML returns an error: a browser has no driver.
func openNVML() (monitor.Session, error) { return monitor.Session{}, errors.ErrUnsupported }
