package step

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// CachedExecutor runs trials as [Local] does. It caches recent recordings and their replays, for processes that answer
// many requests and for searches on several GPUs. GPUs on which a step differs only in the sizes of some buffers share
// a recording. GPUs on which the step is identical also share replays. It is safe for concurrent use.
type CachedExecutor struct {
	// GPUs are the GPUs that may share recordings. If empty, each GPU has its own.
	GPUs []device.GPU

	mu     sync.Mutex
	cached map[string]*sharedSteps
	// recent are the keys of the cached steps, the latest last. instructions is the total number of their instructions.
	recent       []string
	instructions int
}

// maxCachedInstructions limits the total number of instructions in cached recordings. An instruction takes about 100
// bytes with its tables, so dozens of recordings are cached, as many as searches on GPUs of similar memory can share.
const maxCachedInstructions = 1 << 20

// evict counts the instructions of the cached steps and removes the least recently used recordings above the limit.
func (x *CachedExecutor) evict(used *sharedSteps) {
	used.mu.Lock()
	n := 0
	for _, r := range used.recordings {
		n += len(r.Program.Instructions)
	}
	used.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cached[used.key] == used { // else it is dropped already
		x.instructions += n - used.instructions
		used.instructions = n
	}
	for x.instructions > maxCachedInstructions && len(x.recent) > 1 {
		oldest := x.recent[0]
		x.instructions -= x.cached[oldest].instructions
		delete(x.cached, oldest)
		x.recent = slices.Delete(x.recent, 0, 1)
	}
}

// GroupGPUs returns the indices of GPUs in groups of equal compute capability, by which libraries select kernels.
func GroupGPUs(gpus []device.GPU) [][]int {
	return lists.Groups(lists.Ascending(len(gpus)), func(i int) device.Capability { return gpus[i].Capability })
}

// OrderForSharing returns the indices of searches (a case on a GPU) in the order that shares the most recordings.
func OrderForSharing(gpus []device.GPU, of func(i int) models.CaseKey) []int {
	at := lists.Ascending(len(gpus))
	slices.SortStableFunc(at, func(a, b int) int {
		x, y := gpus[a], gpus[b]
		return cmp.Or(cmp.Compare(of(a), of(b)), cmp.Compare(x.Memory, y.Memory))
	})
	return at
}

// sharedSteps are the recordings of one trial: one recording for all GPUs, or several.
type sharedSteps struct {
	key string
	// instructions is the number of the recordings' instructions that count towards the cache's limit.
	instructions int

	mu         sync.Mutex
	recordings []*sharedRecording
}

// A sharedRecording is a recording with the GPUs that it was made for, its own first, and its programs in use.
type sharedRecording struct {
	*models.Recording
	gpus     []device.GPU
	programs []*sharedProgram
}

// A sharedProgram is a program for one or several GPUs, with its replays without a memory limit.
type sharedProgram struct {
	recording *models.Recording
	sizes     []int64
	settled   *Simulation // without the context

	mu      sync.Mutex
	replays map[ReplayOptions]*Result
}

// Try runs a trial, or returns its remembered result, for [Executor].
func (x *CachedExecutor) Try(ctx context.Context, t Trial) (_ *Result, err error) {
	if t.shared == nil && t.recording == nil && t.setup != nil && t.Replay.Device == "" {
		of := x.stepsFor(t)
		if t.shared, err = of.program(ctx, t, x.GPUs); err != nil {
			return nil, err
		}
		t.recording = t.shared.recording
		x.evict(of)
	}
	if t.shared == nil || t.Replay.StopAtLimit || t.Replay.Spill {
		return Local{}.Try(ctx, t)
	}
	return t.shared.try(ctx, t)
}

func (x *CachedExecutor) stepsFor(t Trial) *sharedSteps {
	// With many micro-batches, [Trial.Record] records more of them if GPUs are timed.
	whole := len(t.Timed) > 0 && t.setup.c.Accumulate > MaxMicroBatches
	t.GPU, t.Replay, t.Timed = device.GPU{}, ReplayOptions{OmitUnperturbedRun: whole}, nil
	key := t.Key()
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.Index(x.recent, key); i >= 0 {
		x.recent = slices.Delete(x.recent, i, i+1)
	} else {
		if x.cached == nil {
			x.cached = map[string]*sharedSteps{}
		}
		x.cached[key] = &sharedSteps{key: key}
	}
	x.recent = append(x.recent, key)
	return x.cached[key]
}

// similarMemoryRatio is the largest ratio of two GPUs' memory sizes at which searches try about the same batches.
const similarMemoryRatio = 2

// program returns a trial's program for its GPU. A new recording also serves other GPUs that have none yet. If a batch
// is judged, these are only GPUs of similar memory size.
func (s *sharedSteps) program(ctx context.Context, t Trial, all []device.GPU) (*sharedProgram, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.recordings {
		if p := r.programFor(t.GPU); p != nil {
			return p, nil
		}
	}
	others := slices.DeleteFunc(slices.Clone(all), func(gpu device.GPU) bool {
		far := max(gpu.Memory, t.GPU.Memory) > similarMemoryRatio*min(gpu.Memory, t.GPU.Memory)
		served := slices.ContainsFunc(s.recordings, func(r *sharedRecording) bool { return r.indexOf(gpu) >= 0 })
		return served || gpu.Name == t.GPU.Name || far && t.Replay.TrainingOnly
	})
	rec, err := t.Record(ctx, others...)
	if err != nil {
		return nil, err
	}
	r := &sharedRecording{rec, append([]device.GPU{t.GPU}, others...), nil}
	if rec.Facts.Answered { // which GPUs cuDNN was asked about is not recorded for each
		r.gpus = r.gpus[:1]
	}
	s.recordings = append(s.recordings, r)
	p := r.programFor(t.GPU)
	if t.simulation != nil {
		p.settled = &Simulation{t.simulation.Run, t.simulation.Device - t.GPU.Context}
	}
	return p, nil
}

// indexOf returns the index of a GPU in the recording; negative if the recording is not for that GPU.
func (r *sharedRecording) indexOf(gpu device.GPU) int {
	at := slices.IndexFunc(r.gpus, func(g device.GPU) bool { return g.Name == gpu.Name && g.Memory == gpu.Memory })
	if at < 0 || !r.Others.IsUsable(at-1) {
		return -1
	}
	return at
}

// programFor returns the recording's program for a GPU; nil if the GPU needs its own recording.
func (r *sharedRecording) programFor(gpu device.GPU) *sharedProgram {
	at := r.indexOf(gpu)
	if at < 0 {
		return nil
	}
	sizes := r.Others.Sizes(at - 1)
	for _, p := range r.programs {
		if slices.Equal(p.sizes, sizes) {
			return p
		}
	}
	p := &sharedProgram{recording: r.Recording, sizes: sizes, replays: map[ReplayOptions]*Result{}}
	if at > 0 {
		p.recording = r.ForGPU(at - 1)
	}
	r.programs = append(r.programs, p)
	return p
}

// try replays the program for a trial. A replay without a memory limit serves all GPUs: only their contexts differ.
func (p *sharedProgram) try(ctx context.Context, t Trial) (*Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.replays[t.Replay]
	if known == nil {
		plain := t
		plain.Timed, plain.GPU.Context, plain.simulation = nil, 0, p.settled
		r, err := Local{}.result(ctx, plain)
		if err != nil {
			return nil, err
		}
		r.trial = Trial{}
		p.replays[t.Replay], known = r, r
	}
	r := *known
	r.trial = t
	if r.Run != nil {
		r.Device += t.GPU.Context
	}
	var err error
	r.Loads, err = r.trial.kernelLoads(ctx)
	return &r, err
}

// stepCounts stores the number of steps after which the allocator's cache stopped growing, by case and batch size. It
// is safe for concurrent use.
type stepCounts struct {
	mu    sync.Mutex
	sizes map[models.CaseKey]map[int]stepCount // by case and batch size
}

// A stepCount is the [Trial.Steps] of a trial and the number of steps that it took; zero is the default number.
type stepCount struct{ tried, taken int }

// keyOfSteps returns the key of a case, the same for all releases of libraries.
func keyOfSteps(c models.Case) models.CaseKey {
	c.Stack = nil
	return c.Key()
}

// lookup returns the [Trial.Steps] for an attempt at a batch size of a case: the same as in the last attempt at this
// size, else the number of steps that the nearest size took. If none was tried yet, the recording decides.
func (r *stepCounts) lookup(c models.Case, batch int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	sizes := r.sizes[keyOfSteps(c)]
	n, known := sizes[batch]
	switch {
	case len(sizes) == 0:
		return stepsUntilSteady
	case known:
		return n.tried
	}
	return sizes[nearestSize(sizes, batch)].taken
}

// nearestSize returns the recorded batch size nearest to a batch, the smaller of two; zero if there is none.
func nearestSize(sizes map[int]stepCount, batch int) (size int) {
	for n := range sizes {
		apart, least := max(n-batch, batch-n), max(size-batch, batch-size)
		if size == 0 || apart < least || apart == least && n < size {
			size = n
		}
	}
	return size
}

// remember stores the number of steps that a trial of a batch size of a case took.
func (r *stepCounts) remember(c models.Case, batch int, n stepCount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := keyOfSteps(c)
	if r.sizes == nil {
		r.sizes = map[models.CaseKey]map[int]stepCount{}
	}
	if r.sizes[key] == nil {
		r.sizes[key] = map[int]stepCount{}
	}
	r.sizes[key][batch] = n
}
