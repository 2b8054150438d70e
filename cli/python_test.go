package cli

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/lists"
)

// pythonOptions is the file of the Python package with the options of its functions.
const pythonOptions = "../python/vprof_gpu/options.py"

// unwantedInPython are flags that choose output, which the package does itself, or belong to command lines.
var unwantedInPython = regexp.MustCompile(
	`^(color|export|format|help|help-all|into|json-.*|page|plain|quiet|request|shard|wide)$`)

// ownProcess matches options that a process of its own answers: a lasting one would keep its context on the GPU.
var ownProcess = regexp.MustCompile(`^(auto|device)$`)

// The types of the package's options are the flags of the commands: editors complete and check them.
func TestOptionsOfThePythonPackageAreTheFlags(t *testing.T) {
	var text strings.Builder
	text.WriteString("\"\"\"Options of the functions, as the commands have them. Generated: go test ./cli " +
		"-run Python -update.\"\"\"\n\nfrom __future__ import annotations\n\nfrom collections.abc import Mapping, " +
		"Sequence\nfrom typing import TypedDict, Union\n\nValue = Union[str, int, float, bool]\n" +
		"Values = Union[Value, Sequence[Value], Mapping[str, Value]]\n")
	root, verbs, entries := newRootCmd(newSystemApp()), []string{"plan", "fit", "smoke", "run"}, map[string][]string{}
	alone := map[string][]string{}
	for _, verb := range verbs {
		cmd, _, err := root.Find([]string{verb})
		require.NoError(t, err)
		cmd.InitDefaultHelpFlag()
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if unwantedInPython.MatchString(f.Name) || f.Hidden {
				return
			}
			if !requestable(f) || ownProcess.MatchString(f.Name) {
				alone[verb] = append(alone[verb], fmt.Sprintf("%q", strings.ReplaceAll(f.Name, "-", "_")))
			}
			entries[verb] = append(entries[verb], fmt.Sprintf("\n    %s: %s\n    \"\"\"%s\"\"\"\n",
				strings.ReplaceAll(f.Name, "-", "_"), pythonType(f), strings.ReplaceAll(docstring(f), `"""`, `'''`)))
		})
	}
	shared := lists.Filter(entries["plan"], func(entry string) bool {
		return slices.Contains(entries["fit"], entry) && slices.Contains(entries["smoke"], entry)
	})
	text.WriteString("\n\nclass CaseOptions(TypedDict, total=False):\n    \"\"\"Options of all commands that plan a " +
		"case.\"\"\"\n" + strings.Join(shared, ""))
	for _, verb := range verbs {
		base, own := "CaseOptions", lists.Filter(entries[verb], func(entry string) bool {
			return !slices.Contains(shared, entry)
		})
		if verb == "run" {
			base, own = "TypedDict", entries[verb]
		}
		fmt.Fprintf(&text, "\n\nclass %sOptions(%s, total=False):\n    \"\"\"Options of vprof %s.\"\"\"\n%s",
			strings.ToUpper(verb[:1])+verb[1:], base, verb, strings.Join(own, ""))
	}
	text.WriteString("\n\n# Options that the process behind the functions takes: they write no file and use no GPU of " +
		"this machine.\nANSWERED = {\n")
	for _, verb := range verbs[:3] {
		fmt.Fprintf(&text, "    %q: frozenset(%sOptions.__annotations__) - {\n        %s},\n", verb,
			strings.ToUpper(verb[:1])+verb[1:], strings.Join(alone[verb], ", "))
	}
	text.WriteString("}\n")
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(pythonOptions, []byte(text.String()), 0o644))
	}
	have, err := os.ReadFile(pythonOptions)
	require.NoError(t, err)
	require.Equal(t, text.String(), string(have))
}

// pythonType returns the type of a flag's value.
func pythonType(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "bool"
	case "int", "int64", "uint":
		return "int"
	case "float64":
		return "float"
	}
	return "Values"
}

// docstring returns the help of a flag in lines of a docstring.
func docstring(f *pflag.Flag) string {
	_, usage := pflag.UnquoteUsage(f)
	var lines []string
	line := ""
	for _, word := range strings.Fields(strings.ToUpper(usage[:1]) + usage[1:] + ".") {
		if len(line)+len(word) > 108 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.ReplaceAll(strings.Join(append(lines, line), "\n    "), `\`, `\\`)
}
