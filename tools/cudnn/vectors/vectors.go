// Package vectors reads recorded workspaces of convolutions: the bytes that cuDNN 9.19 allocated through PyTorch 2.11
// on six GPUs, as bzip2-compressed lines of JSON for each configuration and GPU.
package vectors

import (
	"bufio"
	"compress/bzip2"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Vector is one recorded configuration on one GPU.
type Vector struct {
	GPU    cudnn.GPU
	Config cudnn.Config
	// Reference reports whether the convolution belongs to a reference model.
	Reference bool
	// Workspaces are bytes by direction, in the order of their allocation.
	Workspaces [3][]int64
	// Kernels are names of the kernels that ran, by direction.
	Kernels [3][]string
}

// GPUs are the recorded GPUs by name. Memory is the total as libraries see it.
var GPUs = map[string]cudnn.GPU{
	"t4":          {Name: "t4", Capability: 75, Memory: 16 << 30},
	"rtx-3060":    {Name: "rtx-3060", Capability: 86, Memory: 12 << 30},
	"rtx-4090":    {Name: "rtx-4090", Capability: 89, Memory: 24 << 30},
	"rtx-5060-ti": {Name: "rtx-5060-ti", Capability: 120, Memory: 16 << 30},
	"a100-40":     {Name: "a100-40", Capability: 80, Memory: 40 << 30},
	"h200":        {Name: "h200", Capability: 90, Memory: 141 << 30},
}

// line is one line of the file.
type line struct {
	GPU        string   `json:"gpu"`
	Gemm       int      `json:"gemm"`
	Kernels    []string `json:"kernels"`
	Dim        int      `json:"dim"`
	Transposed int      `json:"tr"`
	N          int64    `json:"n"`
	Ci         int64    `json:"ci"`
	Co         int64    `json:"co"`
	In         []int64  `json:"in"`
	K          []int64  `json:"k"`
	Stride     []int64  `json:"s"`
	Pad        []int64  `json:"p"`
	Dilation   []int64  `json:"d"`
	Groups     int64    `json:"g"`
	DType      string   `json:"dt"`
	Layout     uint8    `json:"cl"`
	Out        []int64  `json:"out"`
	Reference  int      `json:"ref"`
	Forward    []int64  `json:"f"`
	GradInput  []int64  `json:"i"`
	GradWeight []int64  `json:"w"`
	ForwardK   []int    `json:"fk"`
	GradInputK []int    `json:"ik"`
	GradWeigK  []int    `json:"wk"`
}

// Read reads the file at path.
func Read(path string) ([]Vector, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	vs, err := decode(bzip2.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return vs, nil
}

func decode(r io.Reader) ([]Vector, error) {
	var lines []line
	var kernels []string
	s := bufio.NewScanner(r)
	s.Buffer(nil, 4<<20)
	for n := 1; s.Scan(); n++ {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case l.Kernels != nil:
			kernels = l.Kernels
		case l.Gemm == 0:
			lines = append(lines, l)
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	vs := make([]Vector, len(lines))
	for i, l := range lines {
		v, err := l.vector(kernels)
		if err != nil {
			return nil, err
		}
		vs[i] = v
	}
	return vs, nil
}

func (l line) vector(kernels []string) (Vector, error) {
	gpu, ok := GPUs[l.GPU]
	if !ok {
		return Vector{}, fmt.Errorf("unknown GPU %q", l.GPU)
	}
	dtype := map[string]cudnn.DType{"f32": cudnn.F32, "f16": cudnn.F16, "bf16": cudnn.BF16}[l.DType]
	v := Vector{
		GPU: gpu,
		Config: cudnn.Config{
			Dim: l.Dim, Transposed: l.Transposed == 1, N: l.N, Ci: l.Ci, Co: l.Co,
			In: sizes(l.In), K: sizes(l.K), Stride: sizes(l.Stride), Pad: sizes(l.Pad),
			Dilation: sizes(l.Dilation), Out: sizes(l.Out), Groups: l.Groups,
			DType: dtype, Layout: cudnn.Layout(l.Layout),
		},
		Reference:  l.Reference == 1,
		Workspaces: [3][]int64{l.Forward, l.GradInput, l.GradWeight},
	}
	for d, ks := range [3][]int{l.ForwardK, l.GradInputK, l.GradWeigK} {
		for _, k := range ks {
			v.Kernels[d] = append(v.Kernels[d], kernels[k])
		}
	}
	return v, nil
}

func sizes(s []int64) (a [3]int64) {
	copy(a[:], s)
	return a
}
