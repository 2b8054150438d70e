package main

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// agentTools are the verbs that agents may use: verbs without side effects.
var agentTools = []string{"plan", "fit", "smoke", "time", "diagnose", "gpus", "models"}

func newMCPCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Serve agents through the Model Context Protocol (standard input and output)",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.agentServer().Run(cmd.Context(), &mcp.StdioTransport{MaxLineLength: longestRequest})
		},
	}
}

// agentServer returns a server with a tool for each verb of [agentTools].
func (a *app) agentServer() *mcp.Server {
	a.rememberTrials()
	server := mcp.NewServer(&mcp.Implementation{Name: "vprof", Version: thisVersion().Version}, nil)
	root := newRootCmd(a)
	addPages(root)
	for _, verb := range agentTools {
		cmd, _, err := root.Find([]string{verb})
		if err != nil {
			panic(err) // a verb of ours
		}
		server.AddTool(
			&mcp.Tool{
				Name:        verb,
				Description: cmd.Long,
				InputSchema: requestSchema(cmd.Flags()),
				Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
			},
			func(ctx context.Context, call *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return a.callTool(ctx, cmd, call.Params.Arguments), nil
			},
		)
	}
	return server
}

// callTool runs a verb. A negative verdict is an answer; a refused request is an error for the agent.
func (a *app) callTool(ctx context.Context, cmd *cobra.Command, arguments json.RawMessage) *mcp.CallToolResult {
	r, err := requestOf(arguments)
	if err != nil && len(arguments) > 0 {
		return toolError("the arguments are not a JSON object: " + err.Error())
	}
	s := a.runVerb(ctx, cmd.Name(), nil, cmd.Flags(), r)
	if s.code != exitFine && s.code != exitNegative || s.result == nil {
		return toolError(s.message)
	}
	result := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(s.result)}}}
	if s.message != "" {
		result.Content = append(result.Content, &mcp.TextContent{Text: s.message})
	}
	return result
}

func toolError(message string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: message}}}
}

// requestSchema returns the JSON Schema of requests for a verb.
func requestSchema(flags *pflag.FlagSet) map[string]any {
	properties := map[string]any{
		requestFiles: map[string]any{
			"type":        "array",
			"items":       map[string]any{"type": "string"},
			"description": "input files of the command: a trainer's configuration, a log",
		},
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if !requestable(flag) {
			return
		}
		_, usage := pflag.UnquoteUsage(flag)
		kinds := []string{"string", "number", "array", "object"}
		if flag.NoOptDefVal == "true" {
			kinds = []string{"boolean", "string"}
		}
		properties[flag.Name] = map[string]any{"type": kinds, "description": usage}
	})
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}
