package report

import (
	"fmt"
	"strconv"
	"strings"
)

// Model is the content of a model's page, besides its registry entry.
type Model struct {
	// GPU is the GPU of attention and of answers to claims that name no other.
	GPU string `json:"gpu"`
	// Parameters has the element counts of each stage.
	Parameters []Stage `json:"parameters"`
	// Inputs are the tensors of a batch.
	Inputs []Input `json:"inputs"`
	// Attention are the backends of scaled_dot_product_attention; empty if the model does not call it.
	Attention []AttentionBackend `json:"attention"`
	// Claims are the estimates of the project's guide; empty if there are none.
	Claims []Claim `json:"claims"`
}

// Stage is a freeze stage with the element counts of the model in it.
type Stage struct {
	// Task is the model's training task; absent if there is only one.
	Task  string `json:"task,omitempty"`
	Stage string `json:"stage"`
	// Trains describes the parameters that are trained.
	Trains string `json:"trains"`
	Parameters
}

// Input is a tensor of a batch, or several alike. Sizes are numbers, B for the batch size, or multiples of it: "8·B".
type Input struct {
	Type  string   `json:"type"`
	Shape []string `json:"shape"`
	Count int      `json:"count"`
}

// String describes the input: "2 × float32 [B, 150]".
func (i Input) String() string {
	s := i.Type + " [" + strings.Join(i.Shape, ", ") + "]"
	if i.Count > 1 {
		return strconv.Itoa(i.Count) + " × " + s
	}
	return s
}

// AttentionBackend is the backend of a kind of attention call in a precision.
type AttentionBackend struct {
	// Precision is fp32, or autocast's precision.
	Precision string `json:"precision"`
	// Backend is flash, memory-efficient, cuDNN or math.
	Backend   string `json:"backend"`
	HeadWidth int64  `json:"head_width"`
	Masked    bool   `json:"masked"`
	// Why is the reason why no faster backend is used; absent if none is faster.
	Why string `json:"why,omitempty"`
}

// StageSheet returns the stages with their element counts.
func (m *Model) StageSheet() Sheet {
	s := Sheet{Columns: Columns("task? | stage | parameters> | trainable> | criterion> | buffers> | trains")}
	for _, p := range m.Parameters {
		s.Row(p.Task, p.Stage, groupDigits(p.Total), groupDigits(p.Trainable), groupDigits(p.Criterion),
			groupDigits(p.Buffers),
			p.Trains)
	}
	return s.withoutEmptyColumns()
}

// InputSheet returns the tensors of a batch; unit is one element of it.
func (m *Model) InputSheet(unit string) Sheet {
	s := Sheet{Columns: []Column{{Head: fmt.Sprintf("a batch of B %ss", unit)}}}
	for _, in := range m.Inputs {
		s.Row(in)
	}
	return s
}

// AttentionSheet returns the backends of attention; it has no rows if the model has no attention.
func (m *Model) AttentionSheet() Sheet {
	s := Sheet{Columns: Columns("attention in | runs on | head width> | mask | why on " + m.GPU)}
	for _, a := range m.Attention {
		s.Row(a.Precision, a.Backend, integer(a.HeadWidth), yesOrNo(a.Masked), a.Why)
	}
	return s
}

// groupDigits formats n with commas between thousands.
func groupDigits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
