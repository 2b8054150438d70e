package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/golden"
)

// docs/cli and docs/man are made from the commands.
func TestCommandReferenceIsCurrent(t *testing.T) {
	root := newRootCmd(system())
	addPages(root)
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	epoch := time.Unix(0, 0).UTC() // the pages change with the commands alone
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return // help topics and shells of completion that are hidden
		}
		var b bytes.Buffer
		link := func(file string) string { return file }
		require.NoError(t, doc.GenMarkdownCustom(cmd, &b, link))
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "_") + ".md"
		golden.Equal(t, filepath.Join("../../docs/cli", name), b.Bytes())
		b.Reset()
		require.NoError(t, doc.GenMan(cmd,
			&doc.GenManHeader{Section: "1", Source: "vprof", Manual: "vprof", Date: &epoch}, &b))
		golden.Equal(t, filepath.Join("../../docs/man",
			strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"), b.Bytes())
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// docs/moving.md lists every old name with the new one, and the new ones exist.
func TestMovedVerbsAreListed(t *testing.T) {
	page, err := os.ReadFile("../../docs/moving.md")
	require.NoError(t, err)
	root := newRootCmd(system())
	for _, m := range moved {
		require.Contains(t, string(page), "| `vprof "+m.old+" ", m.old)
		cmd, _, err := root.Find(m.new)
		require.NoError(t, err)
		require.True(t, cmd.IsAvailableCommand(), m.old)
		require.Contains(t, string(page), "| `"+cmd.CommandPath()+" ", m.old)
	}
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
