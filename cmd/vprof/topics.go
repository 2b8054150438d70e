package main

import (
	"embed"
	"strings"

	"github.com/spf13/cobra"
)

// pages are the long help of commands, and their examples: help/fleet-run.txt is of "vprof fleet
// run".
//
//go:embed help
var pages embed.FS

// addPages gives a root command and those below it their pages, where they are shown. A page
// takes in what several say, as {shards} stands for help/part-shards.txt, and lists.
func addPages(root *cobra.Command) {
	parts := strings.NewReplacer("{lengths}", pageText("part-lengths"), "{shards}", pageText("part-shards"), "{trust}",
		pageText("part-trust"),
		"{types}", hfTypes(), "{agent tools}", strings.Join(agentTools, ", "))
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		name := strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), root.Name()+" "), " ", "-")
		if text := pageText(name); text != "" {
			cmd.Long, cmd.Example, _ = strings.Cut(text, "\n\nExamples:\n")
			cmd.Long = parts.Replace(cmd.Long)
		}
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	add(root)
}

// pageText is the text of a page; empty if there is none, where the short help says it all.
func pageText(name string) string {
	text, err := pages.ReadFile("help/" + name + ".txt")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// newTopics are the help pages that belong to no command.
func newTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What vprof's exit codes mean"},
		{Use: "formats", Short: "What the output formats hold"},
		{Use: "gpu-spec", Short: "How to describe a board of your own"},
		{Use: "trainers", Short: "How to plan from a trainer's configuration"},
		{Use: "strategies", Short: "How several GPUs can train together"},
		{Use: "units", Short: "How amounts of memory are given and counted"},
	}
}
