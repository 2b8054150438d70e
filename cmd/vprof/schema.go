package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/report"
)

func newSchemaCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:       "schema [" + strings.Join(report.Schemas(), "|") + "]",
		Short:     "Print the JSON Schema of what vprof writes",
		ValidArgs: report.Schemas(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("name one schema: %s", strings.Join(report.Schemas(), ", "))
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
				return usagef("there is no schema %q; use one of %s", name, strings.Join(report.Schemas(), ", "))
			}
			_, err := a.stdout.Write(text)
			return err
		},
	}
	return cmd
}
