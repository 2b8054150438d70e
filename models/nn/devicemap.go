package nn

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// DeviceMap holds the options of from_pretrained(device_map) in transformers 5.24, which spreads a model over the
// GPUs of one process.
type DeviceMap struct {
	// Sequential fills each GPU before the next. LowZero puts as little as possible on the first. Without either, all
	// GPUs get about the same.
	Sequential, LowZero bool
	// Memory is the largest number of bytes of weights on each GPU (max_memory).
	Memory []int64
	Loading
	// IsQuantized reports whether bitsandbytes quantizes layers.
	IsQuantized bool
}

// ErrModelTooLarge reports that a model does not fit on all GPUs together.
var ErrModelTooLarge = errors.New("the model does not fit on the GPUs of device-map, and from_pretrained would put a " +
	"part of it on the host, where it cannot train; use more GPUs (--gpus), or a larger memory= in --strategy")

// InferDeviceMap returns the number of the GPU of each module and parameter that is on one GPU as a whole, by path, as
// infer_auto_device_map does. Modules that are added later (adapters) are not included.
func (t *Tree) InferDeviceMap(m DeviceMap) (map[string]int, error) {
	root, memory := t.deviceModules(m), slices.Clone(m.Memory)
	if !m.Sequential && len(memory) > 1 {
		root.balanceMemory(memory, m.LowZero)
	}
	for i := range memory {
		if m.IsQuantized { // adjust_max_memory leaves room for quantizing
			memory[i] = memory[i] / 10 * 9
		}
	}
	i := &deviceInference{memory: memory, used: make([]int64, len(memory)), on: map[string]int{}}
	for _, s := range t.tied {
		name := t.names[slices.Index(t.Parameters, s.p)]
		i.tied = append(i.tied, [2]string{join(name.module, name.own), join(s.module, name.own)})
	}
	return i.on, i.run(root)
}

// deviceModule is a module or a parameter, with the bytes of its parameters and buffers. Its first children are the
// module's own parameters, whose number is parameters.
type deviceModule struct {
	path       string
	bytes      int64
	children   []*deviceModule
	parameters int
	whole      bool // never split (_no_split_modules): blocks of transformers, embeddings of encoders
}

func (t *Tree) deviceModules(m DeviceMap) *deviceModule {
	root := &deviceModule{}
	known := map[string]*deviceModule{"": root}
	var at func(path string) *deviceModule
	at = func(path string) *deviceModule {
		if known[path] == nil {
			parent, own := splitPath(path)
			known[path] = &deviceModule{path: path, whole: own == "embeddings" || strings.Trim(own, "0123456789") == ""}
			p := at(parent)
			p.children = append(p.children, known[path])
		}
		return known[path]
	}
	count := func(module string, bytes int64) {
		at(module).bytes += bytes
		for module != "" {
			module, _ = splitPath(module)
			at(module).bytes += bytes
		}
	}
	for _, module := range t.modules {
		at(module.path.Name)
	}
	for i, p := range t.Parameters {
		if p.movesLater {
			continue
		}
		owner, bytes := at(t.names[i].module), p.Numel()*m.typeOf(p).Size()
		own := &deviceModule{path: join(t.names[i].module, t.names[i].own), bytes: bytes}
		owner.children = slices.Insert(owner.children, owner.parameters, own)
		owner.parameters++
		count(owner.path, bytes)
	}
	for i, b := range t.Buffers {
		count(t.buffered[i], product(b.Dims)*b.DType.Size())
	}
	return root
}

// splitPath returns the path of a module's parent and the module's own name.
func splitPath(path string) (parent, own string) {
	dot := strings.LastIndexByte(path, '.')
	return path[:max(0, dot)], path[dot+1:]
}

func (m *deviceModule) splits() bool { return !m.whole && len(m.children) > m.parameters }

// balanceMemory records get_balanced_memory: each GPU except the last gets an equal part and room for one block.
func (m *deviceModule) balanceMemory(memory []int64, lowZero bool) {
	shares, last := int64(len(memory)), len(memory)-1
	if lowZero {
		shares--
	}
	each := m.bytes/shares + int64(1.25*float64(m.largestModule(func(m *deviceModule) bool {
		return m.whole || len(m.children) > 0 && len(m.children) == m.parameters
	})))
	all := m.bytes
	for i := range memory[:last] {
		if i > 0 || !lowZero {
			memory[i] = min(each, memory[i])
		}
	}
	if lowZero {
		for _, n := range memory[1:] {
			all -= n
		}
		memory[0] = min(max(0, all), memory[0])
	}
}

func (m *deviceModule) largestModule(counts func(*deviceModule) bool) (bytes int64) {
	if counts(m) {
		bytes = m.bytes
	}
	for _, c := range m.children {
		bytes = max(bytes, c.largestModule(counts))
	}
	return bytes
}

// deviceInference is the state of a run of infer_auto_device_map.
type deviceInference struct {
	memory, used []int64
	on           map[string]int
	tied         [][2]string // two names of one shared parameter
	left         []*deviceModule
	device       int
}

func (i *deviceInference) run(root *deviceModule) error {
	i.left = root.children
	for len(i.left) > 0 {
		if i.device == len(i.memory) {
			return ErrModelTooLarge
		}
		m := i.left[0]
		i.left = i.left[1:]
		room := i.memory[i.device] - i.used[i.device]
		if i.device == 0 {
			room -= i.reserve()
		}
		partners := i.partners(m)
		total := m.bytes + lists.Sum(partners, func(p *deviceModule) int64 { return p.bytes })
		switch {
		case total <= room:
			i.place(m, total, partners)
		case len(partners) > 0 && m.bytes <= room && i.splitPartner(m, partners):
		case m.splits():
			i.left = append(slices.Clone(m.children), i.left...)
		default:
			i.device++
			i.left = append([]*deviceModule{m}, i.left...)
		}
	}
	return nil
}

// place places a module, and the modules that share a parameter with it, on the current GPU.
func (i *deviceInference) place(m *deviceModule, bytes int64, partners []*deviceModule) {
	i.used[i.device] += bytes
	for _, x := range append(partners, m) {
		i.on[x.path] = i.device
		i.left = slices.DeleteFunc(slices.Clone(i.left), func(y *deviceModule) bool { return x == y })
	}
}

// reserve returns the bytes to leave free on the first GPU: the size of the largest layer that is not placed yet
// (get_max_layer_size).
func (i *deviceInference) reserve() (bytes int64) {
	for _, m := range i.left {
		bytes = max(bytes, m.largestModule(func(m *deviceModule) bool { return !m.splits() }))
	}
	return bytes
}

// partners returns the modules that are not placed yet and share a parameter with m.
func (i *deviceInference) partners(m *deviceModule) (out []*deviceModule) {
	for _, names := range i.tied {
		for k, name := range names {
			if other := names[1-k]; isAtOrBelow(name, m.path) && !isAtOrBelow(other, m.path) {
				at := slices.IndexFunc(i.left, func(x *deviceModule) bool { return isAtOrBelow(other, x.path) })
				if at >= 0 {
					out = lists.Union(out, i.left[at])
				}
			}
		}
	}
	return out
}

// splitPartner replaces one of the modules that share a parameter with m by that module's children.
func (i *deviceInference) splitPartner(m *deviceModule, partners []*deviceModule) bool {
	for _, p := range partners {
		if p.splits() {
			at := slices.Index(i.left, p)
			i.left = slices.Concat([]*deviceModule{m}, i.left[:at], p.children, i.left[at+1:])
			return true
		}
	}
	return false
}

func isAtOrBelow(name, path string) bool { return name == path || IsBelow(name, path) }

// ApplyDeviceMap assigns modules and parameters to the GPUs of a device map, of which the tape records the one with
// number gpu. Batches go to the first GPU that holds a part of the model.
func (t *Tree) ApplyDeviceMap(tape *trace.Tape, on map[string]int, gpu int) {
	onOther := func(path string) (is, known bool) {
		for {
			if n, there := on[path]; there || path == "" {
				return n != gpu, there
			}
			path, _ = splitPath(path)
		}
	}
	part := map[bool]trace.StagePart{false: trace.OwnStage, true: trace.OtherGPU}
	modules := map[*trace.Path]trace.StagePart{}
	for _, m := range t.modules {
		if is, known := onOther(m.path.Name); known {
			modules[&m.path] = part[is]
		}
	}
	for i, p := range t.Parameters {
		p.IsElsewhere, _ = onOther(join(t.names[i].module, t.names[i].own))
	}
	for i, b := range t.Buffers {
		b.IsElsewhere, _ = onOther(t.buffered[i])
	}
	used := slices.Compact(slices.Sorted(maps.Values(on)))
	home := part[gpu != used[0]]
	if len(used) == 1 { // accelerate adds no hooks to the model
		modules = nil
	} else if root := t.modules[0]; root.path.Name == "" {
		modules[&root.path] = home
	}
	tape.SetDeviceMap(home, modules)
}
