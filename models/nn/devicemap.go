package nn

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// DeviceMap is how from_pretrained(device_map) of transformers 5.24 shares a model out over the GPUs of a process.
type DeviceMap struct {
	// Sequential fills each GPU before the next; LowZero leaves the first as empty as can be; without, all are alike.
	Sequential, LowZero bool
	// Memory is how many bytes of weights each GPU may have (max_memory).
	Memory []int64
	Loading
	// Packed reports whether bitsandbytes packs layers.
	Packed bool
}

// ErrNotOnGPUs reports that a model has no room on all GPUs together.
var ErrNotOnGPUs = errors.New("from_pretrained would put a part of the model on the host, where it cannot train; " +
	"use more GPUs, or more of their memory")

// Devices returns the GPU of each module and parameter that is on one GPU as a whole, by its path:
// infer_auto_device_map. Modules that are added later (adapters) are not included.
func (t *Tree) Devices(m DeviceMap) (map[string]int, error) {
	root, memory := t.deviceModules(m), slices.Clone(m.Memory)
	if !m.Sequential && len(memory) > 1 {
		root.balance(memory, m.LowZero)
	}
	for i := range memory {
		if m.Packed { // adjust_max_memory: room for packing
			memory[i] = memory[i] / 10 * 9
		}
	}
	i := &inference{memory: memory, used: make([]int64, len(memory)), on: map[string]int{}}
	for _, s := range t.tied {
		name := t.names[slices.Index(t.Parameters, s.p)]
		i.tied = append(i.tied, [2]string{join(name.module, name.own), join(s.module, name.own)})
	}
	return i.on, i.run(root)
}

// deviceModule is a module, or a parameter of one, with the bytes of its parameters and buffers. The first children are
// the module's own parameters; parameters is their number.
type deviceModule struct {
	path       string
	bytes      int64
	children   []*deviceModule
	parameters int
	whole      bool // one of _no_split_modules: blocks of transformers, and embeddings of encoders
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
		owner, bytes := at(t.names[i].module), p.Numel()*m.of(p).Size()
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

// balance records get_balanced_memory: all GPUs except the last get an equal part of the model and room for a block.
func (m *deviceModule) balance(memory []int64, lowZero bool) {
	shares, last := int64(len(memory)), len(memory)-1
	if lowZero {
		shares--
	}
	each := m.bytes/shares + int64(1.25*float64(m.largest(func(m *deviceModule) bool {
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

func (m *deviceModule) largest(counts func(*deviceModule) bool) (bytes int64) {
	if counts(m) {
		bytes = m.bytes
	}
	for _, c := range m.children {
		bytes = max(bytes, c.largest(counts))
	}
	return bytes
}

// inference is infer_auto_device_map while it runs.
type inference struct {
	memory, used []int64
	on           map[string]int
	tied         [][2]string // names of a parameter
	left         []*deviceModule
	device       int
}

func (i *inference) run(root *deviceModule) error {
	i.left = root.children
	for len(i.left) > 0 {
		if i.device == len(i.memory) {
			return ErrNotOnGPUs
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
			i.put(m, total, partners)
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

// put places a module, and the modules that share a parameter with it, on the GPU.
func (i *inference) put(m *deviceModule, bytes int64, partners []*deviceModule) {
	i.used[i.device] += bytes
	for _, x := range append(partners, m) {
		i.on[x.path] = i.device
		i.left = slices.DeleteFunc(slices.Clone(i.left), func(y *deviceModule) bool { return x == y })
	}
}

// reserve returns the bytes to leave free on the first GPU: the largest unplaced layer (get_max_layer_size).
func (i *inference) reserve() (bytes int64) {
	for _, m := range i.left {
		bytes = max(bytes, m.largest(func(m *deviceModule) bool { return !m.splits() }))
	}
	return bytes
}

// partners returns the unplaced modules that share a parameter with m.
func (i *inference) partners(m *deviceModule) (out []*deviceModule) {
	for _, names := range i.tied {
		for k, name := range names {
			if other := names[1-k]; inside(name, m.path) && !inside(other, m.path) {
				at := slices.IndexFunc(i.left, func(x *deviceModule) bool { return inside(other, x.path) })
				if at >= 0 {
					out = lists.Union(out, i.left[at])
				}
			}
		}
	}
	return out
}

// splitPartner replaces a module that shares a parameter with m by its children.
func (i *inference) splitPartner(m *deviceModule, partners []*deviceModule) bool {
	for _, p := range partners {
		if p.splits() {
			at := slices.Index(i.left, p)
			i.left = slices.Concat([]*deviceModule{m}, i.left[:at], p.children, i.left[at+1:])
			return true
		}
	}
	return false
}

func inside(name, path string) bool { return name == path || Below(name, path) }

// Spread places the modules and parameters of the model on the GPUs of a device map. The tape records the GPU with the
// given number. Batches are on the first GPU that holds any part.
func (t *Tree) Spread(tape *trace.Tape, on map[string]int, gpu int) {
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
		p.Away, _ = onOther(join(t.names[i].module, t.names[i].own))
	}
	for i, b := range t.Buffers {
		b.Away, _ = onOther(t.buffered[i])
	}
	used := slices.Compact(slices.Sorted(maps.Values(on)))
	home := part[gpu != used[0]]
	if len(used) == 1 { // the model has no hooks
		modules = nil
	} else if root := t.modules[0]; root.path.Name == "" {
		modules[&root.path] = home
	}
	tape.SetDeviceMap(home, modules)
}
