package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// sharedTrials is an executor that does the same work once for all commands, GPUs and memories: a recording serves
// all GPUs that the recorder says it does, and equal programs have equal replays. All is kept until
// [sharedTrials.Forget].
type sharedTrials struct {
	// GPUs are the GPUs of the trials.
	GPUs []device.GPU

	mu      sync.Mutex
	steps   map[string][]*steps
	results map[string]*step.Result
	// held are the steps whose recording is still there, the latest last.
	held []*steps
}

// steps is one recording of a trial and the GPUs that it is valid for, or the error with which PyTorch refuses it.
// On each GPU it is valid for a range of memory, since cuDNN runs a convolution without a workspace where the GPU
// cannot hold it.
type steps struct {
	recording *models.Recording // nil once it is discarded
	err       error
	on        map[string]trialOnGPU
}

type trialOnGPU struct {
	recording    *models.Recording
	hash         uint64
	least, under int64
}

// mostHeld bounds the recordings that are kept in memory, each of some MiB.
const mostHeld = 8

// Try implements [step.Executor].
func (s *sharedTrials) Try(ctx context.Context, t step.Trial) (*step.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	also := t.Also
	t.Also = nil
	r, err := s.try(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, a := range also {
		t.GPU, t.Timed = a.GPU, a.Timed
		other, err := s.try(ctx, t)
		if err != nil {
			return nil, err
		}
		r.Also = append(r.Also, other)
	}
	return r, nil
}

func (s *sharedTrials) try(ctx context.Context, t step.Trial) (*step.Result, error) {
	of, err := s.of(ctx, t, false)
	if err != nil {
		return nil, err
	}
	if s.results[replayKey(t, of.on[t.GPU.Name].hash)] != nil {
		return s.replay(ctx, t, of)
	}
	if of, err = s.of(ctx, t, true); err != nil {
		return nil, err
	}
	r, err := s.replay(ctx, t, of)
	if err != nil || t.Replay.Within || t.Replay.Expandable || len(t.Timed) > 0 {
		return r, err
	}
	for _, b := range s.GPUs { // which will be asked for next, when the recording is gone
		if _, served := of.on[b.Name]; served {
			t.GPU = b
			if _, err := s.replay(ctx, t, of); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// replay returns a trial by recorded steps. Without a limit of memory GPUs differ by their contexts alone.
func (s *sharedTrials) replay(ctx context.Context, t step.Trial, of *steps) (*step.Result, error) {
	on := of.on[t.GPU.Name]
	key := replayKey(t, on.hash)
	var before int64 // the context, bytes
	if !t.Replay.Within && !t.Replay.Omit {
		before, t.GPU.Context = t.GPU.Context, 0
	}
	if s.results[key] == nil {
		r, err := step.Local{}.Try(ctx, t.Of(on.recording))
		if err != nil {
			return nil, err
		}
		if s.results == nil {
			s.results = map[string]*step.Result{}
		}
		s.results[key] = r.Plain()
	}
	r := s.results[key].Plain()
	r.Device += before
	return r, nil
}

// of returns the steps of a trial on its GPU, with their recording if that is needed.
func (s *sharedTrials) of(ctx context.Context, t step.Trial, recorded bool) (*steps, error) {
	name, memory := t.GPU.Name, t.GPU.Memory
	t.Replay, t.Timed = step.Replay{}, nil
	plain := t
	plain.GPU = device.GPU{}
	key := plain.Key()
	for _, of := range s.steps[key] {
		if of.serves(name, memory) && (of.recording != nil || of.err != nil || !recorded) {
			return of, of.err
		}
	}
	for _, b := range s.GPUs {
		known := func(of *steps) bool { return of.serves(b.Name, memory) }
		if b.Name != name && !slices.ContainsFunc(s.steps[key], known) {
			b.Memory = memory
			t.Also = append(t.Also, step.Also{GPU: b})
		}
	}
	of, err := s.record(ctx, t)
	if err != nil {
		return nil, err
	}
	if s.steps == nil {
		s.steps = map[string][]*steps{}
	}
	s.steps[key] = append(s.steps[key], of)
	return of, of.err
}

// serves reports whether the recording is valid for a GPU with a number of bytes of memory.
func (of *steps) serves(gpu string, memory int64) bool {
	p, served := of.on[gpu]
	return served && p.least <= memory && memory < p.under
}

func (s *sharedTrials) record(ctx context.Context, t step.Trial) (*steps, error) {
	gpus := []device.GPU{t.GPU}
	for _, a := range t.Also {
		gpus = append(gpus, a.GPU)
	}
	rec, err := t.Record(ctx)
	of := &steps{recording: rec, err: err, on: map[string]trialOnGPU{}}
	if err != nil {
		if !step.Refused(err) {
			return nil, errors.Join(err, ctx.Err())
		}
		of.on[t.GPU.Name] = trialOnGPU{least: t.GPU.Memory, under: t.GPU.Memory + 1}
		return of, nil
	}
	for i, b := range gpus {
		on := rec
		if i > 0 {
			on = rec.On(i - 1)
		}
		if on != nil {
			p := trialOnGPU{recording: on, hash: hashOf(on.Program)}
			if p.least, p.under, err = memories(t, rec, b); err != nil {
				return nil, err
			}
			of.on[b.Name] = p
		}
	}
	if len(s.held) == mostHeld {
		s.held[0].discard()
		s.held = s.held[1:]
	}
	s.held = append(s.held, of)
	return of, nil
}

func (of *steps) discard() {
	of.recording.Discard()
	of.recording = nil
	for gpu, on := range of.on {
		on.recording = nil
		of.on[gpu] = on
	}
}

// memories returns the range of memory, in bytes, within which the convolutions of a recording have the same workspaces
// as on GPU b: from least to below under.
func memories(t step.Trial, rec *models.Recording, b device.GPU) (least, under int64, err error) {
	release, err := t.Case.Release()
	if err != nil {
		return 0, 0, err
	}
	under = math.MaxInt64
	rules := release.Rules().Convolutions
	for _, c := range rec.Facts.Convolutions {
		gpu := cudnn.GPU{Name: b.Name, Capability: int(b.Capability), Memory: math.MaxInt64 / 2}
		var n int64
		for _, bytes := range rules.Workspaces(c.Config, c.Direction, gpu) {
			n += bytes
		}
		if n <= b.Memory {
			least = max(least, n)
		} else {
			under = min(under, n)
		}
	}
	return least, under, nil
}

// hashOf returns the same for programs whose replays are the same.
func hashOf(p *program.Program) (h uint64) {
	mix := func(n uint64) {
		const prime = 0x9E3779B97F4A7C15 // 2^64 over the golden ratio
		h = bits.RotateLeft64(h^n, 29) * prime
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		mix(uint64(b.Bytes))
		mix(uint64(b.Class)<<56 | uint64(b.Stream)<<32 | uint64(b.Site))
	}
	for _, in := range p.Instructions {
		mix(uint64(in.Kind)<<32 | uint64(in.Arg))
	}
	return h
}

// replayKey identifies the replay of a program, on a GPU of its own where memory is limited.
func replayKey(t step.Trial, hash uint64) string {
	var gpu device.GPU
	if t.Replay.Within {
		gpu = t.GPU
	}
	t.GPU = gpu
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // a trial is plain data
	}
	return fmt.Sprint(hash, string(text))
}

// Forget ends what is known.
func (s *sharedTrials) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.held {
		of.discard()
	}
	s.steps, s.results, s.held = nil, nil, nil
}
