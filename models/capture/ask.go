package capture

import (
	"context"
	_ "embed"
	"fmt"
	"runtime"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// AskScript is the Python script that asks cuDNN for workspaces.
//
//go:embed ask.py
var AskScript string

// Asking selects the Python interpreter whose cuDNN is asked about convolutions.
type Asking struct {
	// Python is the interpreter; empty is PATH's. Library is a libcudnn.so.9 to use instead of the interpreter's.
	Python, Library string
	// Driver is the path of libcuda, without which cuDNN proposes no kernels that it compiles; empty for none.
	Driver string
	// Verbose copies Python's output to this process's stderr.
	Verbose bool
}

// On Blackwell GPUs cuDNN from version productless on proposes matrix products for which cuBLASLt has no kernel.
const (
	blackwell   = 120
	productless = "9.26"
)

// Ask asks cuDNN for the workspaces of convolutions on a [cudnn.Generation] of GPUs. It returns the version of cuDNN
// that answered ("9.19") and the bytes of each workspace, -1 if cuDNN has no engine. The error is a [*RefusedError] if
// the user can fix the cause.
func (a Asking) Ask(ctx context.Context, generation int, questions []query.Question) (version string,
	workspaces []int64, err error,
) {
	files, err := askFiles(generation)
	if err != nil {
		return "", nil, err
	}
	var lines strings.Builder
	for _, q := range questions {
		lines.WriteString(q.String() + "\n")
	}
	s := program{
		name: "vprof_ask.py", text: AskScript, purpose: "asking cuDNN", python: a.Python,
		files: files, stdin: strings.NewReader(lines.String()), verbose: a.Verbose,
	}
	var answer struct {
		CuDNN string  `json:"cudnn"`
		Bytes []int64 `json:"bytes"`
	}
	err = s.run(ctx, func(dir string) []string {
		return a.args(dir, generation)
	}, &answer)
	if err != nil {
		return "", nil, err
	}
	if len(answer.Bytes) != len(questions) || answer.CuDNN == "" {
		return "", nil, fmt.Errorf("cuDNN answered %[2]d of %[1]d questions about convolutions; run \"vprof capture "+
			"ask\" again with --verbose, which shows the output of Python", len(questions), len(answer.Bytes))
	}
	return answer.CuDNN, answer.Bytes, nil
}

// askFiles returns the files that the script reads: stubs of cuBLASLt, and the description of a GPU of the generation.
func askFiles(generation int) (map[string][]byte, error) {
	stubs := query.Stubs()
	if stubs == nil {
		return nil, &RefusedError{What: fmt.Sprintf("cuDNN can be asked on Linux (x86-64 and arm64), not on %s/%s",
			runtime.GOOS, runtime.GOARCH)}
	}
	files := map[string][]byte{"gpu.json": query.GPU(generation)}
	for name, library := range stubs {
		files["stubs/"+name] = library
	}
	return files, nil
}

// args returns the script's arguments, which name the files of [askFiles] in a folder.
func (a Asking) args(dir string, generation int) []string {
	args := []string{"--stubs", dir + "/stubs", "--gpu", dir + "/gpu.json"}
	if generation == blackwell {
		args = append(args, "--no-products-from", productless)
	}
	if a.Library != "" {
		args = append(args, "--cudnn", a.Library)
	}
	if a.Driver != "" {
		args = append(args, "--driver", a.Driver)
	}
	return args
}
