package device

import (
	_ "embed" // the profiles
	"fmt"
	"strings"

	"github.com/vprof/vprof/internal/nearest"
	"github.com/vprof/vprof/internal/pattern"
)

// A migProfile is a kind of slice that a GPU can be cut into (multi-instance GPU): its name without the "MIG" before
// it, the multiprocessors, and the memory in GiB, as "nvidia-smi mig -lgip" lists them.
type migProfile struct {
	name string
	sms  int
	gib  float64
}

// migProfiles has the profiles of GPUs, by GPU, from the listings in NVIDIA's user guide of multi-instance GPUs and in
// issues of NVIDIA/mig-parted and NVIDIA/gpu-operator. Drivers differ by up to a tenth.
var migProfiles = readProfiles()

//go:embed mig.csv
var profilesCSV string

func readProfiles() map[string][]migProfile {
	all := map[string][]migProfile{}
	for line := range strings.Lines(profilesCSV[strings.Index(profilesCSV, "\n")+1:]) {
		var gpu string
		var p migProfile
		if _, err := fmt.Sscan(strings.ReplaceAll(line, ",", " "), &gpu, &p.name, &p.sms, &p.gib); err != nil {
			panic(err) // it is embedded
		}
		all[gpu] = append(all[gpu], p)
	}
	return all
}

// migName parses the name of a slice: "a100-80 1g.10gb", or "NVIDIA A100-SXM4-80GB MIG 1g.10gb" as in the driver. Media
// engines ("+me") make no difference.
var migName = pattern.Lazy(`(?i)^(.+?)[ :/-]*(?:[ :/-]mig)?[ :/-]+([1-7]g\.[0-9]+gb)(?:\+\S+)?$`)

// migSlice finds a slice of a GPU by its name; false if there is no such slice of a known GPU. Rates and bandwidth are
// the slice's share of the GPU's multiprocessors and memory.
func migSlice(name string) (GPU, bool) {
	m := migName().FindStringSubmatch(strings.TrimSpace(name))
	if m == nil {
		return GPU{}, false
	}
	i, ok := index[normalizeName(m[1])]
	if !ok {
		return GPU{}, false
	}
	of := catalog[i]
	for _, p := range migProfiles[of.Name] {
		if strings.EqualFold(p.name, m[2]) {
			return of.migSliceOf(p), true
		}
	}
	return GPU{}, false
}

func (g GPU) migSliceOf(p migProfile) GPU {
	const gib = 1 << 30
	compute, memory := float64(p.sms)/float64(g.SMs), p.gib*gib/float64(g.Memory)
	g.Source = fmt.Sprintf("slice %s of %s as nvidia-smi mig -lgip lists it; rates and bandwidth by its share. %s",
		p.name, g.Name, g.Source)
	g.Name += "-mig-" + p.name
	g.Product += " MIG " + p.name
	g.Aliases, g.LinkBandwidth = nil, 0
	g.SMs, g.Memory, g.L2 = p.sms, int64(p.gib*gib), int64(float64(g.L2)*min(1, memory))
	g.Bandwidth *= min(1, memory)
	for _, rate := range []*float64{&g.Peak.FP32, &g.Peak.TF32, &g.Peak.FP16, &g.Peak.BF16, &g.Peak.FP64} {
		*rate *= compute
	}
	return g
}

// migNames names the known slices of the GPU that a name begins with; nil if there are none.
func migNames(name string) []string {
	m := migName().FindStringSubmatch(strings.TrimSpace(name))
	if m == nil {
		return nil
	}
	var names []string
	if i, ok := index[normalizeName(m[1])]; ok {
		for _, p := range migProfiles[catalog[i].Name] {
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
		if nearest.Normalize(g.Product) == nearest.Normalize(found.Product) && apart(g) < apart(found) {
			found = g
		}
	}
	return found, nil
}
