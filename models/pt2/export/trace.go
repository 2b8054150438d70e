package export

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// parseTrace reads Python's frames:
//
//	File "model.py", line 12, in forward
//	  x = self.conv(x)
func parseTrace(text string) []Frame {
	var out []Frame
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(trimmed, `File "`); ok {
			file, rest, _ := strings.Cut(rest, `", line `)
			number, name, _ := strings.Cut(rest, ", in ")
			n, err := strconv.Atoi(number)
			if err != nil {
				continue
			}
			out = append(out, Frame{File: file, Line: n, Func: name})
			continue
		}
		if last := len(out) - 1; last >= 0 && out[last].Source == "" {
			out[last].Source = trimmed
		}
	}
	return out
}

// ownLine is the innermost line that is not of PyTorch's own modules, whose
// lines say nothing of the model.
func ownLine(trace []Frame) string {
	for i := len(trace) - 1; i >= 0; i-- {
		f := trace[i]
		if !strings.Contains(f.File, "/torch/nn/") && !strings.Contains(f.File, "-packages/torch/") {
			return fmt.Sprintf("%s:%d:%s", path.Base(f.File), f.Line, f.Func)
		}
	}
	return ""
}
