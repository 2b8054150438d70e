package device

import (
	"fmt"
	"strings"

	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/pattern"
)

// A profile is a kind of slice that a GPU can be cut into (multi-instance GPU): its name without the "MIG" before it,
// the multiprocessors, and the memory in GiB, as "nvidia-smi mig -lgip" lists them.
type profile struct {
	name string
	sms  int
	gib  float64
}

// Profiles by GPU, from the listings in NVIDIA's user guide of multi-instance GPUs and in
// issues of NVIDIA/mig-parted and NVIDIA/gpu-operator. Drivers differ by up to a tenth.
var (
	profilesOfA30  = []profile{{"1g.6gb", 14, 5.81}, {"2g.12gb", 28, 11.69}, {"4g.24gb", 56, 23.44}}
	profilesOfA100 = []profile{
		{"1g.5gb", 14, 4.75},
		{"1g.10gb", 14, 9.62},
		{"2g.10gb", 28, 9.75},
		{"3g.20gb", 42, 19.62},
		{"4g.20gb", 56, 19.62},
		{"7g.40gb", 98, 39.25},
	}
	profilesOfA100x80 = []profile{
		{"1g.10gb", 14, 9.5},
		{"1g.20gb", 14, 19.5},
		{"2g.20gb", 28, 19.5},
		{"3g.40gb", 42, 39.25},
		{"4g.40gb", 56, 39.25},
		{"7g.80gb", 98, 78.75},
	}
	profilesOfH100 = []profile{
		{"1g.10gb", 16, 9.75},
		{"1g.20gb", 26, 19.62},
		{"2g.20gb", 32, 19.62},
		{"3g.40gb", 60, 39.5},
		{"4g.40gb", 64, 39.5},
		{"7g.80gb", 132, 79.25},
	}
)

var profiles = map[string][]profile{
	"a30": profilesOfA30, "a100-40": profilesOfA100, "a100-40-pcie": profilesOfA100, "a100-80": profilesOfA100x80,
	"a100-80-pcie": profilesOfA100x80,
	"h100":         profilesOfH100,
	"h100-nvl":     {{"1g.12gb", 16, 10.75}, {"1g.24gb", 26, 21.62}, {"2g.24gb", 32, 21.62}},
	"h200": {
		{"1g.18gb", 16, 16},
		{"1g.35gb", 26, 32.25},
		{"2g.35gb", 32, 32.25},
		{"3g.71gb", 60, 69.5},
		{"4g.71gb", 64, 69.5},
		{"7g.141gb", 132, 139.75},
	},
	"b200": {{"1g.23gb", 18, 22}, {"1g.45gb", 30, 44.25}, {"2g.45gb", 36, 44.25}},
}

// sliced parses the name of a slice: "a100-80 1g.10gb", or "NVIDIA A100-SXM4-80GB MIG
// 1g.10gb" as the driver has it. Media engines ("+me") make no difference.
var sliced = pattern.Of(`(?i)^(.+?)[ :/-]*(?:[ :/-]mig)?[ :/-]+([1-7]g\.[0-9]+gb)(?:\+\S+)?$`)

// slice finds a slice of a GPU by its name; false if it is none of a known GPU. Rates and
// bandwidth are the slice's share of the GPU's multiprocessors and memory.
func slice(name string) (GPU, bool) {
	m := sliced().FindStringSubmatch(strings.TrimSpace(name))
	if m == nil {
		return GPU{}, false
	}
	i, ok := index[fold(m[1])]
	if !ok {
		return GPU{}, false
	}
	of := catalog[i]
	for _, p := range profiles[of.Name] {
		if strings.EqualFold(p.name, m[2]) {
			return of.cut(p), true
		}
	}
	return GPU{}, false
}

// cut returns a slice of a GPU.
func (g GPU) cut(p profile) GPU {
	const gib = 1 << 30
	compute, memory := float64(p.sms)/float64(g.SMs), p.gib*gib/float64(g.Memory)
	g.Source = fmt.Sprintf("slice %s of %s as nvidia-smi mig -lgip lists it; rates and bandwidth by its share. %s",
		p.name, g.Name, g.Source)
	g.Name += "-mig-" + p.name
	g.Product += " MIG " + p.name
	g.Aliases, g.Link = nil, 0
	g.SMs, g.Memory, g.L2 = p.sms, int64(p.gib*gib), int64(float64(g.L2)*min(1, memory))
	g.Bandwidth *= min(1, memory)
	for _, rate := range []*float64{&g.Peak.FP32, &g.Peak.TF32, &g.Peak.FP16, &g.Peak.BF16, &g.Peak.FP64} {
		*rate *= compute
	}
	return g
}

// slicesOf names the known slices of the GPU that a name begins with; nil if there are none.
func slicesOf(name string) []string {
	m := sliced().FindStringSubmatch(strings.TrimSpace(name))
	if m == nil {
		return nil
	}
	var names []string
	if i, ok := index[fold(m[1])]; ok {
		for _, p := range profiles[catalog[i].Name] {
			names = append(names, catalog[i].Name+"-mig-"+p.name)
		}
	}
	return names
}

// Identify finds the GPU of the catalog, or the slice of one, by the driver's name and the memory that it reports: the
// driver gives variants of different memory the same name. The error is an [*UnknownGPUError].
func Identify(product string, memory int64) (GPU, error) {
	found, err := Lookup(product)
	if err != nil {
		return found, err
	}
	apart := func(g GPU) int64 { return max(g.Memory-memory, memory-g.Memory) }
	for _, g := range catalog {
		if nearest.Fold(g.Product) == nearest.Fold(found.Product) && apart(g) < apart(found) {
			found = g
		}
	}
	return found, nil
}
