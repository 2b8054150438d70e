package main

import (
	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
)

func newSchemaCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:       "schema [report|accuracy]",
		Short:     "Print the JSON Schema of what vprof writes",
		ValidArgs: []string{"report", "accuracy"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("name one schema: report or accuracy")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			name := "report"
			if len(args) == 1 {
				name = args[0]
			}
			text, ok := report.JSONSchema(name)
			if !ok {
				return usagef("there is no schema %q; use report or accuracy", name)
			}
			_, err := a.stdout.Write(text)
			return err
		},
	}
	return cmd
}
