package capture

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models/recorded"
)

// stepScript records steps of a model.
//
//go:embed steps.py
var stepScript string

// Compile holds the options of torch.compile, and the precisions and batch sizes to record.
type Compile struct {
	// Form is one of [recorded.Forms] or [recorded.Eager], Loss the name of a loss or empty for the model's own.
	Form, Loss string
	// AMP are the precisions of autocast, "bf16" or "none" for instance, and Batches the batch sizes.
	AMP     []string
	Batches []int
	// Dynamic is torch.compile(dynamic=True), and Budget the activation_memory_budget; zero is PyTorch's own.
	Dynamic bool
	Budget  float64
}

// Point is the precision and batch size of a recorded step.
type Point struct {
	AMP   string
	Batch int
}

// String returns the point as the script reads it: "bf16-16".
func (p Point) String() string { return fmt.Sprintf("%s-%d", p.AMP, p.Batch) }

// Points returns all pairs of precisions and batch sizes.
func (c *Compile) Points() []Point {
	var all []Point
	for _, amp := range c.AMP {
		for _, batch := range c.Batches {
			all = append(all, Point{amp, batch})
		}
	}
	return all
}

// StepRecorder is a command that records steps on a real or simulated GPU, with a folder of its own.
type StepRecorder struct {
	// Args are Python, the script and its arguments.
	Args   []string
	dir    string
	points []Point
}

// Record writes the files of a step recorder into a folder, which Close removes.
func (o Options) Record(c Compile, points []Point) (*StepRecorder, error) {
	files := map[string][]byte{"vprof_capture.py": []byte(Script()), "vprof_steps.py": []byte(stepScript)}
	python, dir, err := prepare(o.Python, files)
	if err != nil {
		return nil, err
	}
	args := []string{
		python, filepath.Join(dir, "vprof_steps.py"), "--result", dir, "--form", c.Form, "--loss=" + c.Loss, "--budget",
		strconv.FormatFloat(c.Budget, 'g', -1, 64), "--at",
		strings.Join(lists.Map(points, Point.String), ","),
	}
	if c.Dynamic {
		args = append(args, "--dynamic")
	}
	return &StepRecorder{append(args, o.args()...), dir, points}, nil
}

// Result adds the command's recordings to a file. The error is a [*RefusedError] if the user can fix the cause.
func (c *StepRecorder) Result(all *recorded.File) error {
	for _, p := range c.points {
		var h recorded.Header
		path := filepath.Join(c.dir, p.String())
		if err := read(path+".json", c.Args[0], nil, "", &h); err != nil {
			return err
		}
		from, err := os.Open(path)
		if err != nil {
			return err
		}
		defer from.Close()
		r, err := recorded.ReadRecording(from, path)
		if err != nil {
			return err
		}
		if err := all.Add(h, r); err != nil {
			return fmt.Errorf("the recording at %v: %w", p, err)
		}
	}
	return nil
}

// Close removes the folder.
func (c *StepRecorder) Close() error { return os.RemoveAll(c.dir) }
