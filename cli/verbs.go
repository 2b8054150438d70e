//go:build !js

package cli

import "github.com/spf13/cobra"

// addVerbs adds the commands, grouped by what users want to do.
func addVerbs(root *cobra.Command, a *app) {
	for _, group := range []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{
			"before", "Before training:",
			[]*cobra.Command{
				newPlanCmd(a), newFitCmd(a), newSweepCmd(a), newSmokeCmd(a), newRunCmd(a), newCardCmd(a), newTimeCmd(a),
			},
		},
		{
			"subject", "Models and GPUs:",
			[]*cobra.Command{newCaptureCmd(a), newModelsCmd(a), newGPUsCmd(a), newDoctorCmd(a)},
		},
		{
			"after", "During and after training:",
			[]*cobra.Command{newMonitorCmd(a), newDiagnoseCmd(a), newReportCmd(a), newCompareCmd(a), newBisectCmd(a)},
		},
		{"trust", "Accuracy:", []*cobra.Command{newAccuracyCmd(a), newCalibrateCmd(a)}},
		{"many", "On many machines:", []*cobra.Command{newFleetCmd(a)}},
		{"programs", "For other programs:", []*cobra.Command{newMCPCmd(a), newSchemaCmd(a)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, cmd := range group.verbs {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(newVersionCmd(a))
	events := newEventsCmd(a)
	events.Hidden = true
	root.AddCommand(events)
}
