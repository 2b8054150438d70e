package series

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// rows calls each with every row of CSV data, as cells by column name without units. It skips repeated headers.
func (j *log) rows(data []byte, each func(cell map[string]string) error) error {
	c := csv.NewReader(bytes.NewReader(data))
	c.TrimLeadingSpace, c.FieldsPerRecord, c.ReuseRecord = true, -1, true
	var names []string
	cells := map[string]string{}
	for {
		row, err := c.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			j.line++
			return err
		}
		j.line, _ = c.FieldPos(0)
		clear(cells)
		header := len(names) > 0
		for i, cell := range row {
			word, _, _ := strings.Cut(strings.TrimSpace(cell), " ")
			if len(names) > i {
				cells[names[i]] = strings.TrimSpace(cell)
				header = header && word == names[i]
			}
		}
		if len(names) == 0 {
			if names, err = columns(row); err != nil {
				return err
			}
			continue
		}
		if header {
			continue
		}
		if err := each(cells); err != nil {
			return err
		}
	}
}

// columns returns the column names of a header. Amounts of memory are in MiB; nvidia-smi adds the unit to the name
// unless the format includes nounits.
func columns(header []string) ([]string, error) {
	var names []string
	for _, cell := range header {
		name, unit, _ := strings.Cut(strings.TrimSpace(cell), " ")
		if slices.Contains(names, name) && name != "" {
			return nil, fmt.Errorf("column %s appears twice; log each column once", name)
		}
		memory := strings.HasPrefix(name, "memory.") || strings.HasPrefix(name, "used_")
		if memory && unit != "" && strings.TrimSpace(unit) != "[MiB]" {
			return nil, fmt.Errorf("column %s is in %s; need [MiB]: log without nounits, or with the unit MiB",
				name, unit)
		}
		names = append(names, name)
	}
	return names, nil
}

// readGPUs reads the CSV of nvidia-smi --query-gpu.
func readGPUs(data []byte) (*log, error) {
	j := &log{}
	return j, j.rows(data, func(cell map[string]string) error {
		used, err := mebibytes("memory.used", cell)
		if err != nil {
			return err
		}
		product := cell["name"]
		name := strings.TrimSpace(cell["index"] + " " + product)
		key := name + cell["uuid"] + cell["pci.bus_id"]
		b, err := j.gpu(key, name, product)
		when := smiTime(cell["timestamp"])
		// Rows of GPUs with one name and no index are in the order of the GPUs.
		for n := 2; err == nil && !when.IsZero() && len(b.moments) > 0 &&
			b.moments[len(b.moments)-1].when.Equal(when); n++ {
			b, err = j.gpu(fmt.Sprint(key, "#", n), fmt.Sprintf("%s #%d", name, n), product)
		}
		if err != nil {
			return err
		}
		if cell["memory.total"] != "" {
			total, err := mebibytes("memory.total", cell)
			if err != nil {
				return err
			}
			if used > total {
				return fmt.Errorf("memory.used: %s is more than memory.total, %s; log the GPU again",
					cell["memory.used"], cell["memory.total"])
			}
			b.total = max(b.total, int64(total))
		}
		m := unknownMoment()
		m.when, m.used = when, used
		b.moments = append(b.moments, m)
		return nil
	})
}

// readProcesses reads the CSV of nvidia-smi --query-compute-apps, which has one row for every process at every time.
func readProcesses(data []byte) (*log, error) {
	j := &log{}
	untold := 0
	err := j.rows(data, func(cell map[string]string) error {
		column := "used_gpu_memory"
		if _, ok := cell[column]; !ok {
			column = "used_memory"
		}
		if strings.HasPrefix(cell[column], "[") || cell[column] == "N/A" {
			untold++
			return nil
		}
		used, err := mebibytes(column, cell)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(cell["pid"])
		if err != nil || pid < 1 {
			return fmt.Errorf("pid: %q: need a process ID", cell["pid"])
		}
		product := cell["gpu_name"]
		b, err := j.gpu(product+cell["gpu_uuid"]+cell["gpu_bus_id"],
			strings.TrimSpace(product+" "+cell["gpu_bus_id"]), product)
		if err != nil {
			return err
		}
		m := b.momentAt(smiTime(cell["timestamp"]), pid)
		m.processes[pid] = used
		if m.names[pid] = cell["process_name"]; m.names[pid] == "" {
			m.names[pid] = cell["name"]
		}
		m.used = max(0, m.used) + used
		return nil
	})
	if err == nil && len(j.gpus) == 0 && untold > 0 {
		err = errors.New("nvidia-smi does not report the memory of processes here; log the GPU with " +
			"--query-gpu=timestamp,name,memory.used,memory.total")
	}
	return j, err
}

// momentAt returns the sample to which the row of a process belongs: the last one, or a new one if the last has another
// time or already contains the process.
func (b *gpu) momentAt(when time.Time, pid int) *moment {
	if n := len(b.moments); n > 0 {
		last := &b.moments[n-1]
		if _, again := last.processes[pid]; !again && last.when.Equal(when) {
			return last
		}
	}
	m := unknownMoment()
	m.when, m.processes, m.names = when, map[int]float64{}, map[int]string{}
	b.moments = append(b.moments, m)
	return &b.moments[len(b.moments)-1]
}

// smiTime parses nvidia-smi's time format; it returns the zero time for another format.
func smiTime(s string) time.Time {
	t, err := time.Parse("2006/01/02 15:04:05.000", s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// mebibytes parses "1234 MiB" or "1234", as nvidia-smi writes it.
func mebibytes(column string, cell map[string]string) (float64, error) {
	s := cell[column]
	v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, "MiB")), 64)
	if err != nil || !(v >= 0 && v < 1e9) || math.IsNaN(v) {
		return 0, fmt.Errorf("%s: %q is not a number of MiB", column, s)
	}
	return math.Round(v * (1 << 20)), nil
}
