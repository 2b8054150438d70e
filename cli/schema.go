package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
)

func newSchemaCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:       "schema [" + strings.Join(report.Schemas(), "|") + "]",
		Short:     "Print the JSON Schema of vprof's output",
		ValidArgs: report.Schemas(),
		Args:      argCount(0, 1, "name one schema: "+strings.Join(report.Schemas(), ", ")),
		RunE: func(_ *cobra.Command, args []string) error {
			name := "report"
			if len(args) == 1 {
				name = args[0]
			}
			text, ok := report.JSONSchema(name)
			if !ok {
				return usagef("unknown schema %q; use one of %s", name, strings.Join(report.Schemas(), ", "))
			}
			_, err := a.stdout.Write(text)
			return err
		},
	}
	return cmd
}
