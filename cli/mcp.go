package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/progress"
)

// serverMemoryLimit is the size, in bytes, from which the memory of a lasting process is collected more often.
const serverMemoryLimit = 160 << 20

// agentTools are the verbs that agents may use: verbs without side effects.
var agentTools = []string{"plan", "fit", "smoke", "time", "diagnose", "gpus", "models"}

func newMCPCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Serve agents through the Model Context Protocol, on standard input and output",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(serverMemoryLimit)
			}
			return a.agentServer().Run(cmd.Context(), (&agentLines{out: a.stdout}).transport(a.stdin))
		},
	}
}

// agentServer returns a server with a tool for each verb of [agentTools].
func (a *app) agentServer() *mcp.Server {
	a.rememberTrials()
	server := mcp.NewServer(&mcp.Implementation{Name: "vprof", Version: buildVersion().Version},
		&mcp.ServerOptions{Instructions: agentInstructions})
	root := newRootCmd(a)
	addPages(root)
	for _, verb := range agentTools {
		cmd, _, err := root.Find([]string{verb})
		if err != nil {
			panic(err) // a verb of ours
		}
		server.AddTool(
			&mcp.Tool{
				Name:         verb,
				Title:        cmd.Short,
				Description:  help{width: 1000}.about(cmd),
				InputSchema:  requestSchema(cmd),
				OutputSchema: answerSchema(verb),
				Annotations:  &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
			},
			func(ctx context.Context, call *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				own := *a
				own.onProgress, own.onPartialPlan = progressNotifiers(ctx, call)
				return own.callTool(ctx, cmd, call.Params.Arguments), nil
			},
		)
	}
	return server
}

// progressNotifiers returns functions that send progress, at most once in [pace], and incomplete plans to a caller that
// asked for progress; otherwise nil.
func progressNotifiers(ctx context.Context, call *mcp.CallToolRequest) (tell progress.Func, look func(*report.Report)) {
	token := call.Params.GetProgressToken()
	if token == nil {
		return nil, nil
	}
	began := time.Now()
	last := began
	send := func(message string, so mcp.Meta) {
		last = time.Now()
		_ = call.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // the answer counts, not its progress
			Meta: so, ProgressToken: token, Progress: last.Sub(began).Seconds(), Message: message,
		})
	}
	tell = func(what string, done, total int) {
		if time.Since(last) >= progressInterval {
			send(fmt.Sprintf("%d of %d %s", done, total, what), nil)
		}
	}
	return tell, func(r *report.Report) { send("not complete", mcp.Meta{fullReportKey: r}) }
}

// callTool runs a verb. A negative verdict is an answer; a refused request is an error for the agent.
func (a *app) callTool(ctx context.Context, cmd *cobra.Command, arguments json.RawMessage) *mcp.CallToolResult {
	r, err := parseRequest(arguments)
	if err != nil && len(arguments) > 0 {
		return toolError(exitUsage, input.Message(err))
	}
	if match, given := r[rowMatchKey]; given {
		delete(r, rowMatchKey)
		r[requestFiles] = match
	}
	whole, _ := r[fullReportKey].(bool)
	delete(r, fullReportKey)
	format := report.Table
	if whole {
		format = report.JSON
	} else {
		a.onPartialPlan = nil
	}
	s := a.runVerb(ctx, cmd.Name(), nil, cmd.Flags(), r, format)
	if s.code != exitFine && s.code != exitNegative || s.document == nil {
		return toolError(s.code, s.message)
	}
	structured := s.structuredJSON(cmd.Name())
	text := &mcp.TextContent{Text: string(s.text)}
	result := &mcp.CallToolResult{StructuredContent: structured, Content: []mcp.Content{text}}
	switch {
	case !whole:
		text.Text = shortenAnswer(text.Text, s.message, maxAnswerBytes-len(structured))
	case cmd.Name() == "plan": // the page shows the table beside the report
		var table strings.Builder
		if err := report.WriteTable(&table, s.document, report.Layout{Width: pipedWidth}); err != nil {
			return toolError(exitFailure, input.Message(err))
		}
		result.Content = append(result.Content, &mcp.TextContent{
			Text:        shortenAnswer(table.String(), s.message, maxAnswerBytes),
			Annotations: &mcp.Annotations{Audience: []mcp.Role{"user"}},
		})
	}
	return result
}

// maxAnswerBytes is the length limit of a tool's answer, in bytes: an agent pays for every word that it reads. With
// what the protocol adds a result has at most 4 KiB.
const maxAnswerBytes = 3600

// shortenAnswer returns an answer followed by a message, in at most room bytes. It drops the last lines of others.
func shortenAnswer(text, message string, room int) string {
	if len(message) > room/4 {
		message = strings.ToValidUTF8(message[:room/4], "") + " ..."
	}
	if message != "" && text != "" {
		message = "\n" + message
	}
	lines, kept := strings.SplitAfter(text, "\n"), 0
	room -= len(message) + 150
	for i, line := range lines {
		if kept += len(line) + 1; kept > room { // JSON writes a newline in two
			return fmt.Sprintf("%s... %d more lines; name fewer GPUs or batches, or ask with \"%s\": true for all as "+
				"JSON%s", strings.Join(lines[:i], ""), len(lines)-i, fullReportKey, message)
		}
	}
	return text + message
}

// toolError returns a refusal, with the exit code of the command for programs.
func toolError(code exitCode, message string) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Meta: mcp.Meta{"exit_code": code}, IsError: true,
		Content: []mcp.Content{&mcp.TextContent{Text: shortenAnswer("", message, maxAnswerBytes)}},
	}
}

// Keys of a tool's arguments that are no flags: options that the schema does not list, whether the answer is the whole
// result, and the text that selects rows of a list.
const (
	moreOptionsKey = "more"
	fullReportKey  = "report"
	rowMatchKey    = "match"
)

// agentInstructions tell an agent how to use the tools.
const agentInstructions = "vprof estimates the GPU memory of PyTorch training before it runs. Name the GPU (gpu) and " +
	"the model or a trainer's file (files). plan judges a batch, fit finds the largest safe batch, smoke checks a " +
	"whole training, diagnose reads an out-of-memory error (text) or log. Judge by the upper end of an interval. " +
	"Answers are short tables; \"report\": true gives all as JSON."

// requestSchema returns the JSON Schema of a verb's requests: flags that its help shows; others are in
// [moreOptionsKey].
func requestSchema(cmd *cobra.Command) map[string]any {
	shown, _ := help{}.chosen(cmd)
	properties := map[string]any{
		moreOptionsKey: map[string]any{
			"type":        "object",
			"description": "other options by name, as vprof help " + cmd.Name() + " lists them",
		},
		fullReportKey: map[string]any{"type": "boolean", "description": "the whole result as JSON"},
		requestFiles: map[string]any{
			"type":        "array",
			"items":       map[string]any{"type": "string"},
			"description": "input files of the command: a trainer's configuration, a log",
		},
	}
	if cmd.Name() == "gpus" || cmd.Name() == "models" {
		properties[rowMatchKey] = map[string]any{"type": "string", "description": "only names that contain this text"}
	}
	if cmd.Name() == "diagnose" {
		properties[requestText] = map[string]any{"type": "string", "description": "an error's text, without files"}
	}
	for _, flag := range shown {
		if !requestable(flag) {
			continue
		}
		_, usage := pflag.UnquoteUsage(flag)
		kinds := []string{"string", "number", "array", "object"}
		if flag.NoOptDefVal == "true" {
			kinds = []string{"boolean", "string"}
		}
		properties[flag.Name] = map[string]any{"type": kinds, "description": briefUsage(usage, 160)}
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": true}
}
