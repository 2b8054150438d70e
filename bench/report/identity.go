package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
)

// SetMeasured sets the host and the time of measured runs that have none yet.
func (r *Report) SetMeasured(host string, at time.Time) {
	for i := range r.Devices {
		if d := &r.Devices[i]; d.HasDriver() && d.Host == "" {
			d.Host = host
		}
	}
	for i := range r.Points {
		d, _ := r.Find(r.Points[i].Device)
		if u := r.Points[i].Run; u != nil && d.HasDriver() && u.At.IsZero() {
			u.At = at
		}
	}
}

// HasDriver reports whether the device has a driver, including a simulated one. Such a device is a particular GPU of a
// machine; others are GPUs of the catalog.
func (d Device) HasDriver() bool { return !d.Simulated || d.Driver != "" || d.UUID != "" }

// identity is equal for two devices if and only if they are the same GPU under the same driver, as far as files tell.
type identity struct {
	simulated              bool
	uuid                   string
	name, host, gpu, title string
	memory, context        int64
	driver, cuda           string
}

func (d Device) identity() identity {
	switch {
	case !d.HasDriver():
		return identity{simulated: true, name: d.Name, gpu: d.GPU, title: d.Title, memory: d.Memory, context: d.Context}
	case d.UUID != "":
		return identity{uuid: d.UUID, memory: d.Memory, driver: d.Driver, cuda: d.CUDA}
	}
	return identity{
		name: d.Name, host: d.Host, gpu: d.GPU, title: d.Title, memory: d.Memory,
		driver: d.Driver, cuda: d.CUDA,
	}
}

// qualifiers are the parts that are added to a name that several GPUs have, one after the other until all names differ.
var qualifiers = []func(Device) string{
	func(d Device) string { return d.GPU },
	func(d Device) string { return bytesize.Format(d.Memory) },
	func(d Device) string { return phrase.Prefix("driver ", d.Driver) },
	func(d Device) string { return d.UUID },
	func(d Device) string { return phrase.Prefix("CUDA ", d.CUDA) },
}

// NameDevices gives each GPU of the reports a unique name, and the same GPU the same name in all of them: "cuda:0" of
// five machines becomes "n1/cuda:0" and so on. If files do not identify the GPU, several may be taken for one; their
// first report gets a warning.
func NameDevices(reports ...*Report) {
	var gpus []Device // one for each identity, in order
	at := map[identity]int{}
	first := map[identity]*Report{} // that has it
	for _, r := range reports {
		for _, d := range r.Devices {
			id := d.identity()
			before, known := first[id]
			if !known {
				at[id], first[id] = len(gpus), r
				gpus = append(gpus, d)
			} else if before != r && d.HasDriver() && d.UUID == "" {
				before.warnUnidentified(d)
			}
		}
	}
	names := uniqueNames(gpus)
	for _, r := range reports {
		r.rename(func(d Device) string { return names[at[d.identity()]] })
	}
}

func (r *Report) warnUnidentified(d Device) {
	w := Warning{
		What: fmt.Sprintf("the files do not identify GPU %s: all runs on %s are treated as one GPU", d.Name, d),
		Hint: "measure again with this vprof, which records the GPU's UUID",
	}
	if !slices.Contains(r.Warnings, w) {
		r.Warnings = append(slices.Clone(r.Warnings), w)
	}
}

// uniqueNames returns unique names for GPUs: their own names if no other GPU has them.
func uniqueNames(gpus []Device) []string {
	names := make([]string, len(gpus))
	groups := map[string][]int{}
	for i, d := range gpus {
		names[i] = d.Name
		groups[d.Name] = append(groups[d.Name], i)
	}
	taken := map[string]bool{}
	for name, group := range groups {
		if len(group) == 1 {
			taken[name] = true
		}
	}
	for i, d := range gpus {
		if group := groups[d.Name]; len(group) > 1 && group[0] == i {
			qualify(gpus, names, group)
		}
		// Another GPU may have the qualified name already.
		for base, n := names[i], 2; len(groups[d.Name]) > 1 && taken[names[i]]; n++ {
			names[i] = fmt.Sprintf("%s #%d", base, n)
		}
		taken[names[i]] = true
	}
	return names
}

// qualify gives GPUs that share a name different ones.
func qualify(gpus []Device, names []string, group []int) {
	for _, i := range group {
		if host := gpus[i].Host; host != "" && gpus[i].HasDriver() {
			names[i] = host + "/" + gpus[i].Name
		}
	}
	suffix := map[int][]string{}
	for _, of := range qualifiers {
		called := func(i int) string { return names[i] + strings.Join(suffix[i], ", ") }
		for _, alike := range lists.Groups(group, called) {
			if slices.IndexFunc(alike, func(i int) bool { return of(gpus[i]) != of(gpus[alike[0]]) }) < 0 {
				continue // it distinguishes none
			}
			for _, i := range alike {
				suffix[i] = append(suffix[i], cmp.Or(of(gpus[i]), "unknown"))
			}
		}
	}
	for _, i := range group {
		names[i] += phrase.If(len(suffix[i]) > 0, " (%s)", strings.Join(suffix[i], ", "))
	}
}

// rename renames the devices, also in points. It first copies data that other reports may share.
func (r *Report) rename(name func(Device) string) {
	to := map[string]string{}
	for _, d := range r.Devices {
		if n := name(d); n != d.Name {
			to[d.Name] = n
		}
	}
	if len(to) == 0 {
		return
	}
	r.Devices, r.Points = slices.Clone(r.Devices), slices.Clone(r.Points)
	for i, d := range r.Devices {
		r.Devices[i].Name = cmp.Or(to[d.Name], d.Name)
	}
	for i, p := range r.Points {
		r.Points[i].Device = cmp.Or(to[p.Device], p.Device)
	}
}

// place returns the place of a measured GPU, such as "cuda:0 of n1"; empty if it is not known.
func (d Device) place() string {
	if d.Host == "" || !d.HasDriver() {
		return ""
	}
	return strings.TrimPrefix(d.Name, d.Host+"/") + " of " + d.Host
}

// tableName returns the name of a GPU in tables: its model, or its device if the report has several GPUs of the model.
func (r *Report) tableName(d Device) string {
	if slices.ContainsFunc(r.Devices, func(o Device) bool { return o.GPU == d.GPU && o.Name != d.Name }) {
		return d.Name
	}
	return d.GPU
}

// Origins lists the sources of the settings that determine a step's memory: options, a file, or the model's defaults.
type Origins struct {
	Given    []string `json:"given,omitempty"`
	FromFile []string `json:"from_file,omitempty"`
	Assumed  []string `json:"assumed,omitempty"`
}

// SettingsFrom is the part of a result that lists the sources of settings.
type SettingsFrom struct {
	// Origins lists where settings come from.
	Origins Origins `json:"settings_from,omitzero"`
}

// SetOrigins records the sources of settings.
func (s *SettingsFrom) SetOrigins(o Origins) { s.Origins = o }
