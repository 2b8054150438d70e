package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// layer is a convolution of a model at any batch size.
type layer struct {
	cudnn.Config
	// samples is the convolution's number of samples for each sample of the batch.
	samples int64
}

// readList reads a list that convolutions.py has written.
func readList(path string) ([]layer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var layers []layer
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		l, err := parseLayer(s.Text())
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, n, err)
		}
		layers = append(layers, l)
	}
	if len(layers) == 0 {
		return nil, fmt.Errorf("%s: no convolutions", path)
	}
	return layers, s.Err()
}

// parseLayer reads a line: dims transposed samples Ci Co groups, then input, kernel, stride, padding, dilation and
// output for each axis.
func parseLayer(line string) (layer, error) {
	var l layer
	words := strings.NewReader(line)
	next := func(to ...*int64) error {
		for _, v := range to {
			if _, err := fmt.Fscan(words, v); err != nil {
				return err
			}
		}
		return nil
	}
	var dims, transposed int64
	if err := next(&dims, &transposed, &l.samples, &l.Ci, &l.Co, &l.Groups); err != nil {
		return l, err
	}
	if dims < 1 || dims > 3 || min(l.samples, l.Ci, l.Co, l.Groups) < 1 || l.Ci%l.Groups != 0 || l.Co%l.Groups != 0 {
		return l, fmt.Errorf("%q is no convolution", line)
	}
	l.Dim, l.Transposed = int(dims), transposed == 1
	for _, sizes := range []*[3]int64{&l.In, &l.K, &l.Stride, &l.Pad, &l.Dilation, &l.Out} {
		for i := range l.Dim {
			if err := next(&sizes[i]); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// ofList draws n questions: random layers at random batch sizes.
func ofList(layers []layer, batches []int, n int, seed uint64) []query.Question {
	d := drawer{Rand: rand.New(rand.NewPCG(seed, 1))}
	asked := make([]query.Question, 0, n)
	for tries := 0; len(asked) < n && tries < 100*n; tries++ {
		l := layers[d.IntN(len(layers))]
		l.N = l.samples * int64(batches[d.IntN(len(batches))])
		l.DType = cudnn.DType(d.among(0, 0, 1, 2))
		last := layoutsOf(l.Config)
		l.Layout = last[0]
		if d.chance(0.3) {
			l.Layout = last[len(last)-1]
		}
		if c, _ := cudnn.Canonical(l.Config, cudnn.Forward); elements(&c) <= d.most() {
			asked = append(asked, query.NewQuestion(l.Config, cudnn.Direction(d.IntN(3))))
		}
	}
	return asked
}
