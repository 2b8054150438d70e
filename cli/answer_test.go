package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models/all"
)

// responses answers lines of requests.
func responses(t *testing.T, lines ...string) []report.Response {
	t.Helper()
	a, stdout, stderr := desk()
	a.models = sync.OnceValue(all.Models)
	a.stdin = strings.NewReader(strings.Join(lines, "\n"))
	code := run(t.Context(), a, []string{"plan", "--json-request", "-", "--json-lines"})
	require.Equal(t, exitFine, code, stderr)
	var answers []report.Response
	d := json.NewDecoder(stdout)
	for d.More() {
		var a report.Response
		require.NoError(t, d.Decode(&a))
		answers = append(answers, a)
	}
	return answers
}

func TestRequestsAreAnsweredInTheirOrder(t *testing.T) {
	var lines []string
	for n := range 24 {
		lines = append(
			lines,
			fmt.Sprintf(
				`{"model":"resnet18","batch":%d,"gpu":["t4","rtx-4090"],"amp":"fp16","checkpointing":false}`,
				n+1,
			),
			"",
		)
	}
	answers := responses(t, lines...)
	require.Len(t, answers, 24)
	for n, a := range answers {
		require.Equal(t, report.ResponseSchema, a.Schema)
		require.Len(t, a.Points, 2)
		require.Equal(t, n+1, a.Points[0].Batch)
		require.Equal(t, []string{"t4", "rtx-4090"}, []string{a.Points[0].GPU, a.Points[1].GPU})
		require.True(t, a.Fits)
		require.GreaterOrEqual(t, a.Points[0].Upper, a.Points[0].Device)
		require.Equal(t, a.Report.Points[0].Estimate.Device.High, a.Points[0].Upper)
	}
}

func TestWhatIsWrongWithARequestIsAnAnswer(t *testing.T) {
	answers := responses(
		t,
		`{"model":"resnet18","gpu":"t4"}`,
		`[`,
		`{"moddel":"resnet18"}`,
		`{"export":"x.json","model":"resnet18"}`,
		`{"model":null}`,
		`{"set":{"images":{}},"model":"resnet18"}`,
		`{"model":"resnet81"}`,
		`{"model":"resnet18","batch":[[1]]}`,
		`{"model":"resnet18","torch":"2.14,2.15"}`,
		`{"model":"resnet18","more":{"model":"resnet34"}}`,
		`{"model":"resnet18","more":["gpu"]}`,
	)
	require.Zero(t, answers[0].ExitCode)
	for i, want := range []string{
		"need a JSON object of options",
		"moddel: requests for plan have no such option; did you mean model?", "export: requests for plan have no such option",
		"model: invalid value <nil>",
		"set: images: need a number or a string as its value", `unknown model "resnet81"; near it: resnet18`,
		"batch: a list may hold only numbers and strings", "torch and rank: a request may name only one release of PyTorch",
		"model: the option is given twice in the request; remove one", "more: need an object of options by name",
	} {
		require.Equal(t, int(exitUsage), answers[i+1].ExitCode)
		require.Contains(t, answers[i+1].Message, want)
		require.Regexp(t, fmt.Sprintf(`^[^:]+:%d: `, i+2), answers[i+1].Message)
	}
}

func TestAgentsUseVerbsAsTools(t *testing.T) {
	ctx := t.Context()
	a, _, _ := desk()
	a.models = sync.OnceValue(all.Models)
	here, there := mcp.NewInMemoryTransports()
	server, err := a.agentServer().Connect(ctx, here, nil)
	require.NoError(t, err)
	defer server.Close()
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, there, nil)
	require.NoError(t, err)
	defer client.Close()
	tools, err := client.ListTools(ctx, nil)
	require.NoError(t, err)
	require.Len(t, tools.Tools, len(agentTools))
	listed, err := json.Marshal(tools)
	require.NoError(t, err)
	require.LessOrEqual(t, len(listed), 24_000)
	schemas := map[string]*jsonschema.Resolved{}
	for _, tool := range tools.Tools {
		require.NotEmpty(t, tool.Description, tool.Name)
		text, err := json.Marshal(tool.OutputSchema)
		require.NoError(t, err)
		var schema jsonschema.Schema
		require.NoError(t, json.Unmarshal(text, &schema), tool.Name)
		schemas[tool.Name], err = schema.Resolve(nil)
		require.NoError(t, err)
	}
	ask := func(tool string, arguments map[string]any) *mcp.CallToolResult {
		result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		require.NoError(t, err)
		if !result.IsError {
			require.NoError(t, schemas[tool].Validate(result.StructuredContent), tool)
			require.NotEmpty(t, result.StructuredContent.(map[string]any)["points"], tool)
		}
		return result
	}
	call := func(tool string, arguments map[string]any) (string, bool) {
		result := ask(tool, arguments)
		text := result.Content[0].(*mcp.TextContent).Text
		if arguments["report"] != true {
			whole, err := json.Marshal(result)
			require.NoError(t, err)
			require.LessOrEqual(t, len(whole), 4096, tool)
		}
		require.False(t, result.IsError && strings.HasPrefix(text, "\n"), "a refusal begins with a word")
		return text, result.IsError
	}
	plan := map[string]any{"model": "resnet18", "batch": []int{8, 16}, "gpu": "t4"}
	text, refused := call("plan", plan)
	require.False(t, refused, text)
	require.Contains(t, text, "safe up to batch 16")
	structured, err := json.Marshal(ask("plan", plan).StructuredContent)
	require.NoError(t, err)
	var answer report.Response
	require.NoError(t, json.Unmarshal(structured, &answer))
	require.Len(t, answer.Points, 2)
	require.Nil(t, answer.Report)
	many := map[string]any{"model": "resnet18", "batch": []int{1, 2, 4, 8, 16}, "gpu": "t4,h100,a100-40"}
	text, refused = call("plan", many)
	require.False(t, refused, text)
	require.NotZero(t, ask("plan", many).StructuredContent.(map[string]any)["left_out"], "half of an answer is text")
	plan["report"], plan["more"] = true, map[string]any{"alloc-conf": "expandable_segments:True"}
	text, refused = call("plan", plan)
	require.False(t, refused, text)
	var r report.Report
	require.NoError(t, json.Unmarshal([]byte(text), &r))
	require.Len(t, r.Points, 2)
	require.Equal(t, "expandable_segments:True", r.Case.AllocConf)
	table := ask("plan", plan).Content[1].(*mcp.TextContent)
	require.Equal(t, []mcp.Role{"user"}, table.Annotations.Audience)
	require.Contains(t, table.Text, "safe up to batch 16")
	text, refused = call("smoke", map[string]any{"model": "resnet18", "batch": 100000, "gpu": "t4"})
	require.False(t, refused, "that it does not fit is an answer")
	require.Contains(t, text, "NOT SAFE: ")
	text, refused = call("fit", map[string]any{"model": "resnet18", "gpu": "t4"})
	require.False(t, refused, text)
	require.Contains(t, text, "▶ stage full")
	text, refused = call("time", map[string]any{"model": "resnet18", "gpu": "t4,h100", "batch": 8})
	require.False(t, refused, text)
	log := filepath.Join(t.TempDir(), "oom.log")
	require.NoError(t, os.WriteFile(log, []byte("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
		0o600))
	text, refused = call("diagnose", map[string]any{"files": log})
	require.False(t, refused, text)
	text, refused = call("diagnose", map[string]any{"text": "torch.OutOfMemoryError: CUDA out of memory. Tried to " +
		"allocate 2.00 GiB."})
	require.False(t, refused, text)
	require.Contains(t, text, "asked for 2.00 GiB")
	text, _ = call("gpus", map[string]any{"match": "h200"})
	require.Contains(t, text, "h200")
	require.NotContains(t, text, "rtx")
	text, _ = call("models", nil)
	require.Contains(t, text, "more lines")
	text, _ = call("models", map[string]any{"match": "qwen3-8b"})
	require.Contains(t, text, "hf:Qwen/Qwen3-8B")
	_, refused = call("plan", map[string]any{"model": strings.Repeat("long", 3000)})
	require.True(t, refused)
	text, refused = call("plan", map[string]any{"model": "resnet18", "batch": 8, "torch": "2.14,2.15"})
	require.False(t, refused, text)
	require.Contains(t, text, "2.14")
	text, refused = call("plan", map[string]any{"model": "nobody"})
	require.True(t, refused)
	require.Contains(t, text, `unknown model "nobody"`)
	_, refused = call("plan", map[string]any{"more": 3})
	require.True(t, refused)
	_, refused = call("fit", map[string]any{"apply": true, "model": "resnet18"})
	require.True(t, refused, "agents write no files")
}

// Lines that are no messages get an error each, and what was asked before the input ended gets its answer.
func TestAgentsAreAnsweredWhateverTheySend(t *testing.T) {
	a, stdout, stderr := desk()
	a.stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
garbage {

` + strings.Repeat("x", 2*longestRequest) + `
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"gpus","arguments":{"match":"h200"}}}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"plan","arguments":{"model":"toy","batch":8}}}`)
	require.Equal(t, exitFine, run(t.Context(), a, []string{"mcp"}), stderr)
	var ids []any
	for line := range strings.Lines(stdout.String()) {
		var answer map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &answer))
		if answer["error"] == nil {
			require.Contains(t, answer, "result")
		}
		ids = append(ids, answer["id"])
	}
	require.ElementsMatch(t, []any{1.0, nil, nil, 2.0, 3.0}, ids)
}

// A program that asked for incomplete plans gets the need first, then the verdict, both before the first recording by
// the rules of another release. What comes later ends if the program cancels it.
func TestTheVerdictComesBeforeOtherReleases(t *testing.T) {
	ask := func(canceled bool) (code exitCode, plan *report.Report, events []string) {
		a, stdout, _ := desk()
		a.models = sync.OnceValue(all.Models)
		a.rememberTrials()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a.onPartialPlan = func(r *report.Report) {
			require.Nil(t, r.Points[0].StackRange)
			events = append(events, "verdict: "+string(r.Points[0].Estimate.Verdict))
		}
		a.onProgress = func(what string, done, _ int) {
			if what == "releases" && done < 2 {
				events = append(events, fmt.Sprint("releases: ", done))
			}
			if canceled && what == "releases" && done == 1 {
				cancel()
			}
		}
		code = run(ctx, a, []string{"plan", "--model", "hf:Qwen/Qwen3-0.6B", "--gpu", "rtx-3060", "--format", "json"})
		if !canceled {
			require.NoError(t, json.Unmarshal(stdout.Bytes(), &plan))
		}
		return code, plan, events
	}
	code, plan, events := ask(false)
	require.Equal(t, exitFine, code)
	verdict := "verdict: " + string(plan.Points[0].Estimate.Verdict)
	require.NotNil(t, plan.Points[0].StackRange)
	require.Equal(t, []string{"verdict: ", verdict, verdict, "releases: 0", "releases: 1"}, events)
	code, _, _ = ask(true)
	require.Equal(t, exitInterrupted, code)
}

// Whoever asks for a step again has the answer of the first time, whatever was asked between.
func TestRequestsOfOneStepHaveOneAnswer(t *testing.T) {
	const line = `{"model": "resnet18", "batch": 8, "gpu": ["t4", "rtx-4090"], "amp": "fp16"}`
	const other = `{"model": "resnet18", "batch": 16, "gpu": "t4"}`
	answers := responses(t, line, other, line, line)
	for _, again := range answers[2:] {
		require.Equal(t, answers[0].Points, again.Points)
	}
	require.NotEqual(t, answers[0].Points, answers[1].Points)
}

// BenchmarkRequests answers requests for steps that no other has asked for, and for a few that many have.
func BenchmarkRequests(b *testing.B) {
	for name, different := range map[string]int{"new": 1 << 20, "recorded": 40} {
		b.Run(name, func(b *testing.B) {
			a, _, _ := desk()
			a.models = sync.OnceValue(all.Models)
			a.rememberTrials()
			flags := newPlanCmd(a).Flags()
			for n := 0; b.Loop(); n++ {
				answer := a.answerPlan(
					b.Context(),
					flags,
					fmt.Appendf(nil, `{"model":"resnet18","batch":%d,"gpu":"h200","set":["classes=%d"]}`,
						n%different%40+1, 10+n%different/40),
				)
				require.Zero(b, answer.ExitCode, answer.Message)
			}
		})
	}
}
