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

// stepScript is the Python script that records steps of a model.
//
//go:embed steps.py
var stepScript string

// Compile holds the options of torch.compile, and the precisions and batch sizes to record.
type Compile struct {
	// Form is one of [recorded.Forms] or [recorded.Eager]. Loss is the name of a loss, empty for the model's own.
	Form, Loss string
	// AMP are the precisions of autocast, such as "bf16" or "none".
	AMP     []string
	Batches []int
	// Dynamic is the argument of torch.compile, Budget is activation_memory_budget; zero is PyTorch's default.
	Dynamic bool
	Budget  float64
}

// Point is the precision and batch size of a recorded step.
type Point struct {
	AMP   string
	Batch int
}

// String returns the point in the script's format, as "bf16-16".
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

// StepRecorder is a command that records steps on a real or simulated GPU, with its temporary folder.
type StepRecorder struct {
	// Args are the Python interpreter, the script and the script's arguments.
	Args   []string
	dir    string
	points []Point
}

// Record returns a step recorder, whose files it writes to a temporary folder. Close removes the folder.
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

// Result adds the steps that the command recorded to all. The error is a [*RefusedError] if the user can fix it.
func (c *StepRecorder) Result(all *recorded.File) error {
	for _, p := range c.points {
		var h recorded.Header
		path := filepath.Join(c.dir, p.String())
		if err := readResult(path+".json", c.Args[0], nil, "", &h); err != nil {
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

// Close removes the temporary folder.
func (c *StepRecorder) Close() error { return os.RemoveAll(c.dir) }
