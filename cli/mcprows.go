package cli

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
)

// agentRows are the columns of the rows in a tool's structured answer: NAME, or NAME:TYPE where JSON has no string, of
// the verb's CSV. A plan answers with the points of a [report.Response].
var agentRows = map[string]string{
	"fit": "device stage amp checkpointing:boolean settings recommended:boolean largest_batch:integer " +
		"estimate_device_high_bytes:integer samples_per_second:number refused",
	"smoke": "check device_bytes:integer safe:boolean fits:boolean",
	"time": "device stage batch:integer fits:boolean step_seconds:number step_low_seconds:number " +
		"step_high_seconds:number samples_per_second:number total_seconds:number",
	"diagnose": "type name text saves_bytes:integer then_device_bytes:integer",
	"gpus":     "name product memory_bytes:integer compute_capability",
	"models":   "name summary",
}

// answerSchema returns the JSON Schema of a tool's structured answer. A plan answers with a [report.Response].
func answerSchema(verb string) map[string]any {
	text, _ := report.JSONSchema("response")
	var schema struct {
		Parts map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		panic(err) // a file of ours
	}
	properties, point := map[string]any{}, map[string]any{}
	for _, name := range []string{"schema", "exit_code", "fits"} {
		properties[name] = schema.Parts["Response"].Properties[name]
	}
	if verb == "plan" {
		point = schema.Parts["ResponsePoint"].Properties
	} else {
		delete(properties, "fits")
	}
	describeColumns(point, agentRows[verb])
	if verb == "smoke" {
		describeColumns(properties, "safe:boolean passed:boolean largest_batch:integer limit_bytes:integer")
	}
	properties["points"] = map[string]any{
		"type": "array", "items": map[string]any{"type": "object", "properties": point},
	}
	properties["left_out"] = map[string]any{"type": "integer", "description": "points that were too many"}
	return map[string]any{
		"type": "object", "properties": properties, "required": []string{"schema", "exit_code", "points"},
	}
}

// describeColumns adds the types of columns to properties of a JSON Schema.
func describeColumns(properties map[string]any, columns string) {
	for _, column := range strings.Fields(columns) {
		name, kind, _ := strings.Cut(column, ":")
		properties[name] = map[string]any{"type": cmp.Or(kind, "string")}
	}
}

// structuredJSON returns the answer for programs in half of [maxAnswerBytes], without the last points if need be.
func (s verbAnswer) structuredJSON(verb string) json.RawMessage {
	answer := map[string]any{"schema": report.ResponseSchema, "exit_code": s.code}
	var points []any
	if verb == "plan" {
		plan := report.Response{ExitCode: int(s.code)}
		plan.FillFrom(s.reports()...)
		answer["fits"], answer["exit_code"], points = plan.Fits, plan.ExitCode, report.AsLines(plan.Points)
	} else {
		points = s.answerRows(verb)
	}
	if d, ok := s.document.(*report.Smoke); ok {
		answer["safe"], answer["passed"], answer["limit_bytes"] = d.Safe, d.Passed, d.Limit
		if !d.Safe {
			answer["largest_batch"] = d.LargestBatch
		}
	}
	kept, room := []json.RawMessage{}, maxAnswerBytes/2-120
	for i, point := range points {
		text, err := json.Marshal(point)
		if room -= len(text) + 1; room < 0 || err != nil {
			answer["left_out"] = len(points) - i
			break
		}
		kept = append(kept, text)
	}
	answer["points"] = kept
	text, _ := json.Marshal(answer) // of texts and numbers
	return text
}

func (s verbAnswer) answerRows(verb string) []any {
	table := s.document.Data().CSV
	return lists.Map(table[1:], func(row []string) any {
		point := map[string]any{}
		for _, column := range strings.Fields(agentRows[verb]) {
			name, kind, _ := strings.Cut(column, ":")
			switch cell := row[slices.Index(table[0], name)]; {
			case cell == "":
			case kind != "":
				point[name] = json.RawMessage(cell)
			default:
				point[name] = briefUsage(cell, 200)
			}
		}
		return point
	})
}
