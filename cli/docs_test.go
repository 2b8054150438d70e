package cli

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/stretchr/testify/require"
)

// referenceVariable names the folder in which `make docs` keeps the command reference.
const referenceVariable = "VPROF_DOCS"

// Every command has a page in Markdown (cli) and a man page (man) that name all its flags.
func TestCommandReferenceIsGenerated(t *testing.T) {
	folder := cmp.Or(os.Getenv(referenceVariable), t.TempDir())
	root := newRootCmd(system())
	addPages(root)
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	epoch := time.Unix(0, 0).UTC() // the same pages from the same commands
	write := func(kind, name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, kind), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, kind, name), []byte(text), 0o644))
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return // help topics and hidden commands
		}
		var markdown, man strings.Builder
		link := func(file string) string { return file }
		require.NoError(t, doc.GenMarkdownCustom(cmd, &markdown, link))
		require.NoError(t, doc.GenMan(cmd,
			&doc.GenManHeader{Section: "1", Source: "vprof", Manual: "vprof", Date: &epoch}, &man))
		for _, flag := range flagNames(cmd) {
			require.Contains(t, markdown.String(), flag, cmd.CommandPath())
			require.Contains(t, strings.ReplaceAll(man.String(), `\-`, "-"), flag, cmd.CommandPath())
		}
		write("cli", strings.ReplaceAll(cmd.CommandPath(), " ", "_")+".md", markdown.String())
		write("man", strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1", man.String())
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

func TestEveryCommandSaysWhatItDoesAndHow(t *testing.T) {
	root := newRootCmd(system())
	addPages(root)
	for _, cmd := range root.Commands() {
		require.NotEmpty(t, cmd.Short, cmd.Name())
		require.False(t, strings.HasSuffix(cmd.Short, "."), "%s: short help is no sentence", cmd.Name())
		if cmd.Runnable() && cmd.Flags().Lookup("model") != nil {
			require.NotEmpty(t, cmd.Example, cmd.Name())
		}
	}
}
