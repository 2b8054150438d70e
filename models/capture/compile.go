package capture

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models/compiled"
)

// compileScript records the compiled step of a model.
//
//go:embed compile.py
var compileScript string

// Compile says how a model's step is compiled, and for what it is recorded.
type Compile struct {
	// Form is one of [compiled.Forms] or [compiled.Eager], Loss the name of a loss or empty for the model's own.
	Form, Loss string
	// AMP are the precisions of autocast, "bf16" or "none" for instance, and Batches the batch sizes.
	AMP     []string
	Batches []int
	// Dynamic is torch.compile(dynamic=True), and Budget the activation_memory_budget; zero is PyTorch's own.
	Dynamic bool
	Budget  float64
}

// Compiling is a command that records a compiled step in a folder of its own. It has to run where PyTorch finds a
// GPU, real or not.
type Compiling struct {
	// Args are Python, the script and its arguments.
	Args []string
	dir  string
}

// Compile writes what recording takes into a folder, which Close removes.
func (o Options) Compile(c Compile) (*Compiling, error) {
	python, err := find(o.Python)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "vprof-capture-")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"vprof_capture.py": []byte(Script), "vprof_compile.py": []byte(compileScript),
	}
	if err := writeFiles(dir, files); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	batches := make([]string, len(c.Batches))
	for i, b := range c.Batches {
		batches[i] = strconv.Itoa(b)
	}
	args := []string{
		python, filepath.Join(dir, "vprof_compile.py"), "--result", filepath.Join(dir, "result.json"), "--form",
		c.Form, "--loss=" + c.Loss,
		"--amp", strings.Join(c.AMP, ","), "--batches", strings.Join(batches, ","), "--budget",
		strconv.FormatFloat(c.Budget, 'g', -1, 64),
	}
	if c.Dynamic {
		args = append(args, "--dynamic")
	}
	return &Compiling{append(args, o.args()...), dir}, nil
}

// Result returns what the command has recorded on a GPU of this name. The error is a [*RefusedError] if the user can do
// something about it.
func (c *Compiling) Result(gpu string) (*compiled.File, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "result.json"))
	if err != nil {
		return nil, fmt.Errorf("capture --compile: Python ended without a result (--verbose shows all that it said)")
	}
	refused, made := new(RefusedError), new(compiled.File)
	if err := errors.Join(json.Unmarshal(text, refused), json.Unmarshal(text, made)); err != nil {
		return nil, fmt.Errorf("capture --compile: the script's result: %w", err)
	}
	if refused.What != "" {
		return nil, refused
	}
	made.GPU = gpu
	return made, nil
}

// Close removes the folder.
func (c *Compiling) Close() error { return os.RemoveAll(c.dir) }
