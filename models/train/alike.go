package train

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// stageFingerprints describes the work of each pipeline rank, given p, a forward pass of the whole model. Ranks with
// equal descriptions run the same kernels on the same sizes, and exchange tensors of the same sizes with their
// neighbors. places are the instructions at which stages begin; trained are the weights that are not frozen.
func stageFingerprints(c models.Case, p *program.Program, places []int, trained []*trace.Tensor) []string {
	all := len(places)
	f := stepFingerprints{
		p: p, trained: map[uint32]bool{}, made: make([]int, len(p.Buffers)),
		read: make([]int, len(p.Buffers)),
	}
	for _, x := range trained {
		f.trained[x.Number()] = true
	}
	f.trackReads()
	begins := append(slices.Clone(places), len(p.Instructions))
	n := int(c.Strategy.PipelineRanks(c.GPUs))
	ranks := make([]string, n)
	for i := range all {
		switch i {
		case 0:
			ranks[0] += "first"
		case all - 1:
			ranks[i%n] += "last"
		default:
			ranks[i%n] += f.fingerprint(begins[i], begins[i+1])
		}
	}
	return ranks
}

// stepFingerprints computes fingerprints of parts of a program.
type stepFingerprints struct {
	p       *program.Program
	trained map[uint32]bool
	// made and read are the instructions that first wrote and last read each buffer.
	made, read []int
}

// trackReads sets the first and last use of each buffer.
func (f *stepFingerprints) trackReads() {
	for i, in := range f.p.Instructions {
		switch in.Kind {
		case program.Alloc:
			f.made[in.Arg] = i
		case program.Launch:
			for _, x := range f.operands(f.p.Ops[in.Arg].Reads) {
				f.read[x.Buffer] = i
			}
		}
	}
}

func (f *stepFingerprints) operands(s program.Span) []program.Operand {
	return f.p.Operands[s.From:s.To]
}

// fingerprint returns a fingerprint of the instructions with indices in [from, to).
func (f *stepFingerprints) fingerprint(from, to int) string {
	h := sha256.New()
	var buf []byte
	add := func(n ...int64) {
		for _, v := range n {
			buf = binary.AppendVarint(buf, v)
		}
	}
	buffer := func(b uint32) {
		x := &f.p.Buffers[b]
		own := int64(0) // index in the part of the instruction that made it, plus 1
		if f.made[b] >= from {
			own = int64(f.made[b] - from + 1)
		}
		trained := int64(0)
		if f.trained[b] {
			trained = 1
		}
		add(x.Bytes, int64(x.Class), int64(x.Stream), own, trained)
	}
	for _, in := range f.p.Instructions[from:to] {
		add(int64(in.Kind))
		switch in.Kind {
		case program.Alloc, program.Free:
			buffer(in.Arg)
		case program.Launch:
			op := &f.p.Ops[in.Arg]
			add(int64(op.Work), int64(op.Precision), op.FLOPs)
			for _, s := range []program.Span{op.Reads, op.Writes} {
				for _, x := range f.operands(s) {
					add(x.Bytes)
					buffer(x.Buffer)
				}
			}
		}
	}
	for _, at := range []int{from, to} {
		add(f.liveAcross(at)...)
	}
	h.Write(buf)
	return string(h.Sum(nil))
}

// liveAcross returns sizes of tensors made before an instruction and read after it, without parameters and buffers.
func (f *stepFingerprints) liveAcross(at int) []int64 {
	var out []int64
	for b := range f.p.Buffers {
		x := &f.p.Buffers[b]
		if f.made[b] < at && f.read[b] >= at && x.Class != program.Weights && x.Class != program.Buffers {
			out = append(out, x.Bytes)
		}
	}
	slices.SortFunc(out, cmp.Compare)
	return append(out, int64(len(out)))
}

func (s pipelineTrainer) DescribeRanks(scratch *trace.Tape) (ranks []string, err error) {
	t := s.t
	err = scratch.Try(func() {
		blocks := t.wrappedBlocks()
		cuts, wrong := StageStarts(t.c, blocks)
		if wrong != nil {
			scratch.Raise(wrong)
		}
		t.placeModel(scratch)
		t.task.Load(scratch, int64(t.c.Batch))
		p := scratch.Program()
		places := []int{len(p.Instructions)}
		t.addGates(scratch, blocks)
		t.onBlock = func(block string, _ []*trace.Tensor) {
			if slices.Contains(cuts[1:], block) {
				places = append(places, len(p.Instructions))
			}
		}
		t.net.SetTraining(true)
		f := scratch.Frame()
		t.computeForward(NewSession(scratch, t.c), f)
		f.End()
		t.onBlock = nil
		if len(places) != len(cuts)-1 {
			scratch.Raise(errors.New("pipeline parallelism (pp) needs blocks that are called once, one after the " +
				"other, and this model has none; use another --strategy"))
		}
		ranks = stageFingerprints(t.c, p, places, Tensors(Trainable(t.net.Parameters)))
	})
	return ranks, err
}
