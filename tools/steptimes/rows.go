package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
)

// measuredOn are the GPUs of kernels.csv.gz. The V100 with PCIe has a lower clock than the catalog's NVLink version.
var measuredOn = map[string]func() device.GPU{
	"Tesla T4":              named("t4", 0),
	"Tesla P100-PCIE-16GB":  named("p100", 0),
	"Tesla V100-PCIE-32GB":  named("v100-32", 14.1e12),
	"NVIDIA A100-PCIE-40GB": named("a100-40-pcie", 0),
	"NVIDIA A100 80GB PCIe": named("a100-80-pcie", 0),
}

func named(name string, fp32 float64) func() device.GPU {
	return func() device.GPU {
		g, err := device.Lookup(name)
		check(err)
		if fp32 > 0 {
			g.Peak.FP32 = fp32
		}
		return g
	}
}

// least is the shortest kernel time in seconds that is used: shorter times are dominated by the CUDA events.
const least = 0.5e-3

func readKernels(path string) ([]measurement, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	r := csv.NewReader(z)
	head, err := r.Read()
	if err != nil {
		return nil, err
	}
	var rows []measurement
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		get := func(name string) int64 {
			v, _ := strconv.ParseFloat(cells[slices.Index(head, name)], 64) // an empty cell is zero
			return int64(v)
		}
		ms, err := strconv.ParseFloat(cells[slices.Index(head, "milliseconds")], 64)
		if err != nil {
			return nil, fmt.Errorf("milliseconds: %w", err)
		}
		gpu, known := measuredOn[cells[1]]
		if ms < 1e3*least || !known {
			continue
		}
		m := measurement{
			family: cells[0] + " " + cells[1], source: cells[0] + ", " + cells[1],
			gpu: gpu(), step: -1, seconds: ms / 1e3,
		}
		m.program = kernel(cells[0], get)
		rows = append(rows, m)
	}
}

// kernel returns a program with the kernel as its only op.
func kernel(name string, get func(string) int64) *program.Program {
	const width = 4
	b, n := get("batch"), get("row_length")
	op := program.Op{Work: program.Elementwise}
	bytes := 2 * width * b * n
	var x program.Product
	switch name {
	case "linear":
		op.Work = program.Matmul
		x = program.Product{M: b * get("m"), N: get("n"), K: get("k"), Batch: 1}
	case "bmm":
		op.Work = program.Matmul
		x = program.Product{M: get("m"), N: get("n"), K: get("k"), Batch: b}
	case "conv":
		op.Work = program.Convolution
		k, out := get("kernel"), (get("input")+2*get("padding")-get("kernel"))/get("stride")+1
		x = program.Product{M: get("out_channels"), N: b * out * out, K: get("in_channels") * k * k, Batch: 1}
		bytes = width * b * (get("in_channels")*get("input")*get("input") + get("out_channels")*out*out)
	case "softmax":
		op.Work = program.Softmax
	case "ln":
		op.Work = program.Normalization
		x = program.Product{M: b, N: n, Batch: 1}
	case "add", "mul", "div", "pow":
		bytes += width * b * n
	}
	if op.Work == program.Matmul {
		bytes = width * x.Batch * (x.M*x.K + x.K*x.N + x.M*x.N)
	}
	op.FLOPs = 2 * x.Batch * x.M * x.N * x.K
	op.Reads = program.Span{From: 0, To: 1}
	p := &program.Program{Ops: []program.Op{op}, Operands: []program.Operand{{Bytes: bytes}}}
	if x.M > 0 {
		p.Products, p.Ops[0].ProductIndex = []program.Product{x}, 1
	}
	return p
}

// records returns measurements of the steps in reference records that have times.
func records(folder string, names ...string) (rows []measurement) {
	for _, name := range names {
		f, err := reference.Open(filepath.Join(folder, name))
		check(err)
		for _, r := range f.Records {
			if r.StepMS == 0 {
				continue
			}
			gpu, err := device.Lookup(r.GPU)
			check(err)
			family, _, _ := strings.Cut(r.Model, "-")
			rows = append(rows, timed(r.Case, gpu, name, family, r.StepMS))
		}
	}
	return rows
}

// stepRow is a line of steps.jsonl.
type stepRow struct {
	Case   models.Case
	GPU    string
	Family string
	StepMS float64 `json:"step_ms"`
	// Passes is "forward", "backward" or "forward and backward" if the rest of the step was not timed.
	Passes string
	// Held reports whether the row is only used for evaluation.
	Held bool
	FP32 float64 `json:"fp32_tflops"`
}

// stepRows returns the measurements of a file of steps, without rows whose model file is missing.
func stepRows(path string) (rows []measurement) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	check(err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r stepRow
		check(json.Unmarshal(lines.Bytes(), &r))
		if scheme, name, ok := strings.Cut(r.Case.Model, "file:"); ok {
			r.Case.Model = scheme + filepath.Join(filepath.Dir(path), name)
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), name)); err != nil {
				continue
			}
		}
		gpu := named(r.GPU, 1e12*r.FP32)()
		m := timed(r.Case, gpu, filepath.Base(path)+" "+r.GPU+" "+r.Passes, r.Family, r.StepMS)
		m.held = r.Held
		if r.Passes != "" {
			keep(m.program, m.step, r.Passes)
		}
		rows = append(rows, m)
	}
	return rows
}

// keep moves the phases that were not timed from step of to another step.
func keep(p *program.Program, of int, passes string) {
	for i := range p.Phases {
		if ph := &p.Phases[i]; ph.Step == of && !strings.Contains(passes, ph.Name) {
			ph.Step = of + 1000
		}
	}
	if strings.Contains(passes, "forward") {
		p.Instructions = withoutLoss(p, of)
	}
}

// withoutLoss returns a program's instructions without the kernels after the last module in the forward pass of a step:
// benchmarks do not time the loss.
func withoutLoss(p *program.Program, of int) []program.Instruction {
	end := slices.IndexFunc(p.Instructions, func(in program.Instruction) bool {
		return in.Kind == program.MarkPhase && p.Phases[in.Arg] == program.Phase{Step: of, Name: "forward"}
	})
	last := end
	for in := p.Instructions[last]; in.Kind != program.Launch || p.Sites[p.Ops[in.Arg].Site].Module == ""; {
		last--
		in = p.Instructions[last]
	}
	return slices.Concat(p.Instructions[:last+1], p.Instructions[end:])
}

// steady is the index of the timed step: earlier ones still allocate.
const steady = 1

func timed(c models.Case, gpu device.GPU, source, family string, ms float64) measurement {
	m, err := all.Models().Lookup(c.Model)
	check(err)
	s, err := step.New(m, c, step.Evidence{Residuals: planner.Residuals})
	check(err)
	rec, err := s.Record(context.Background(), c.Batch, gpu)
	check(err)
	label := fmt.Sprintf("%s, batch %d, %s, %s", filepath.Base(c.Model), c.Batch, c.AMP, gpu.Name)
	return measurement{family, source, label, gpu, rec.Program, steady, ms / 1e3, false, nil}
}
