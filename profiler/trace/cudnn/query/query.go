// Package query formats and parses questions for cuDNN itself: which engine it chooses for a convolution, and that
// engine's workspace. The program in folder ask sends them to cuDNN; its README describes how.
package query

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Question is one convolution call of cuDNN. A 1-D convolution is 2-D with one row, and a transposed one is the data
// gradient of an ordinary one.
type Question struct {
	// Operation is the direction to compute.
	Operation cudnn.Direction
	// Config describes the convolution, which is never transposed or one-dimensional.
	Config cudnn.Config
}

// NewQuestion returns the question about direction d of convolution c.
func NewQuestion(c cudnn.Config, d cudnn.Direction) Question {
	c, d = cudnn.Canonical(c, d)
	return Question{d, c}
}

// sizes returns the spatial sizes of a question, in the order in which they are written.
func (q *Question) sizes() [6]*[3]int64 {
	c := &q.Config
	return [...]*[3]int64{&c.In, &c.K, &c.Out, &c.Stride, &c.Pad, &c.Dilation}
}

// String formats a question as one line for the program that queries cuDNN.
func (q Question) String() string {
	c := q.Config
	line := make([]byte, 0, 96)
	for _, n := range [...]int64{
		int64(q.Operation), int64(c.DType), int64(c.Layout), int64(c.Dim), c.N, c.Ci,
		c.Co, c.Groups,
	} {
		line = append(strconv.AppendInt(line, n, 10), ' ')
	}
	for _, v := range q.sizes() {
		for i := range c.Dim {
			line = append(strconv.AppendInt(line, v[i], 10), ' ')
		}
	}
	return string(line[:len(line)-1])
}

// ParseQuestion parses the text that String returns.
func ParseQuestion(line string) (Question, error) {
	var q Question
	words := strings.Fields(line)
	numbers := make([]int64, len(words))
	for i, w := range words {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return q, err
		}
		numbers[i] = n
	}
	const head = 8
	if len(numbers) < head || numbers[3] < 2 || numbers[3] > 3 || len(numbers) != head+6*int(numbers[3]) {
		return q, fmt.Errorf("got %d numbers: need %d, and six for each of two or three dimensions", len(numbers), head)
	}
	for i, last := range [...]int64{int64(cudnn.GradWeight), int64(cudnn.BF16), int64(cudnn.ChannelsLast)} {
		if numbers[i] < 0 || numbers[i] > last {
			return q, fmt.Errorf("unknown %s %d", [...]string{"operation", "type", "layout"}[i], numbers[i])
		}
	}
	q.Operation = cudnn.Direction(numbers[0])
	q.Config = cudnn.Config{
		DType: cudnn.DType(numbers[1]), Layout: cudnn.Layout(numbers[2]), Dim: int(numbers[3]),
		N: numbers[4], Ci: numbers[5], Co: numbers[6], Groups: numbers[7],
	}
	rest := numbers[head:]
	for _, v := range q.sizes() {
		rest = rest[copy(v[:q.Config.Dim], rest):]
	}
	if err := checkPossible(&q.Config); err != nil {
		return q, err
	}
	return NewQuestion(q.Config, q.Operation), nil
}

// checkPossible returns an error for sizes that no convolution can have.
func checkPossible(c *cudnn.Config) error {
	if min(c.N, c.Ci, c.Co, c.Groups) < 1 || c.Ci%c.Groups != 0 || c.Co%c.Groups != 0 {
		return fmt.Errorf("invalid: %d samples, %d channels in, %d out, %d groups", c.N, c.Ci, c.Co, c.Groups)
	}
	for i := range c.Dim {
		if min(c.In[i], c.K[i], c.Out[i], c.Stride[i], c.Dilation[i]) < 1 || c.Pad[i] < 0 {
			return fmt.Errorf("invalid axis %d: size %d to %d, kernel %d, stride %d, padding %d, dilation %d",
				i, c.In[i], c.Out[i], c.K[i], c.Stride[i], c.Pad[i], c.Dilation[i])
		}
	}
	return nil
}
