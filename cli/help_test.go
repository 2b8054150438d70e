package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Help of a verb fits on a screen, and --help-all has every flag.
func TestHelpFitsOnAScreen(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range available(cmd) {
			visit(sub)
		}
		if !cmd.HasParent() {
			return
		}
		var short, whole bytes.Buffer
		a := newSystemApp()
		a.stdout = &short
		newHelp(a, false).write(cmd)
		lines := strings.Split(strings.TrimRight(short.String(), "\n"), "\n")
		require.LessOrEqual(t, len(lines), 45, cmd.CommandPath())
		require.LessOrEqual(t, strings.Count(short.String(), "\n  -"), maxShownFlags, cmd.CommandPath())
		a.stdout = &whole
		newHelp(a, true).write(cmd)
		for _, f := range append(flagNames(cmd), lines[0]) {
			require.Contains(t, whole.String(), f, cmd.CommandPath())
		}
		for _, line := range strings.Split(whole.String(), "\n") {
			if strings.HasPrefix(line, "   ") && strings.Contains(line, "--") &&
				!strings.Contains(cmd.Example+cmd.Long, strings.TrimSpace(line)) {
				require.LessOrEqual(t, len([]rune(line)), 80, cmd.CommandPath())
			}
		}
	}
	root := newRootCmd(newSystemApp())
	addPages(root)
	visit(root)
}

// flagNames returns the flags of a command that help names.
func flagNames(cmd *cobra.Command) (names []string) {
	for line := range strings.SplitSeq(cmd.LocalFlags().FlagUsages(), "\n") {
		if _, flag, ok := strings.Cut(line, "--"); ok && !strings.HasPrefix(flag, "help") {
			name, _, _ := strings.Cut(flag, " ")
			name, _, _ = strings.Cut(name, "[")
			names = append(names, "--"+name)
		}
	}
	return names
}

// A new option is a key of --set, or an entry of a flag that there is, unless it replaces a flag.
func TestVerbsHaveFewFlags(t *testing.T) {
	for verb, most := range map[string]int{"plan": 55, "fit": 65} {
		cmd, _, err := newRootCmd(newSystemApp()).Find([]string{verb})
		require.NoError(t, err)
		cmd.InitDefaultHelpFlag()
		flags := 0
		cmd.Flags().VisitAll(func(*pflag.Flag) { flags++ })
		cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
			if cmd.Flags().Lookup(f.Name) == nil {
				flags++
			}
		})
		require.LessOrEqual(t, flags, most, verb)
		t.Log(verb, flags)
	}
}

// Each option without a flag is in the help of --set and can be given there.
func TestOptionsWithoutAFlagAreKeys(t *testing.T) {
	page := optionsPage()
	for _, f := range models.Fields() {
		if f.SetOnly {
			require.Contains(t, page, "\n"+f.Name+": ")
			require.Equal(t, []string{"--set", f.Name + "=x"}, f.FlagArgs("x"))
		}
	}
}
