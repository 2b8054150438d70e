package recorded_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/models/recorded"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

var header = recorded.Header{Name: "train.py", GPU: "rtx-3090", Torch: "2.15"}

// GPU is enough of a GPU to record for.
var testGPU = trace.GPU{Name: "rtx-3060", Capability: 86, SMs: 28, ThreadsPerSM: 1536, Memory: 12 << 30}

// programOf records two steps of a model of the registry.
func programOf(t testing.TB, c models.Case) *program.Program {
	rec, err := all.Models().Record(c, testGPU, models.Options{})
	require.NoError(t, err)
	return rec.Program
}

func written(t require.TestingT, h recorded.Header, p *program.Program) []byte {
	var file bytes.Buffer
	of := recorded.File{Header: h, Recordings: []*recorded.Recording{{Batch: 2, Program: p}}}
	require.NoError(t, of.Write(&file))
	return file.Bytes()
}

func TestAWrittenProgramIsReadAgain(t *testing.T) {
	strategy, err := models.ParseStrategy("fsdp2")
	require.NoError(t, err)
	for _, c := range []models.Case{
		{Model: "redimnet-b0", Batch: 2},
		{Model: "gpt2", Batch: 1, GPUs: 4, Strategy: &strategy},
	} {
		p := programOf(t, c)
		f, err := recorded.Read(bytes.NewReader(written(t, header, p)), "run.vprof")
		require.NoError(t, err)
		again := f.Recordings[0].Program
		require.Equal(t, header.Name, f.Name)
		require.Equal(t, p.Phases, again.Phases)
		require.Equal(t, p.Sites, again.Sites)
		require.Equal(t, p.Peak(), again.Peak())
		require.Equal(t, p.FLOPs(), again.FLOPs())
		require.Len(t, again.Instructions, len(p.Instructions))
		third, err := recorded.Read(bytes.NewReader(written(t, f.Header, again)), "run.vprof")
		require.NoError(t, err)
		require.Equal(t, again, third.Recordings[0].Program)
	}
}

// draw draws a program whose buffers, ops and events come in the order in which instructions name them, as they do in a
// program that was read.
func draw(t *rapid.T) *program.Program {
	p := &program.Program{
		Sites:   []program.Site{{Op: "mm", Where: "train.py:7:step"}, {}},
		Streams: []string{"compute", "copy"},
	}
	add := func(k program.Kind, arg int) {
		p.Instructions = append(p.Instructions, program.Instruction{Kind: k, Arg: uint32(arg)})
	}
	stream := func() program.Stream { return program.Stream(rapid.IntRange(0, 1).Draw(t, "stream")) }
	var living []int
	for range rapid.IntRange(0, 40).Draw(t, "length") {
		switch kind := rapid.SampledFrom([]program.Kind{
			program.Alloc, program.Free, program.Launch, program.EmptyCache,
			program.RecordEvent, program.AwaitEvent,
		}).Draw(t, "kind"); kind {
		case program.Alloc:
			p.Buffers = append(p.Buffers, program.Buffer{
				Bytes:  rapid.Int64Range(1, 1<<40).Draw(t, "bytes"),
				Class:  program.Class(rapid.IntRange(0, program.NumClasses-1).Draw(t, "class")),
				Stream: stream(), Site: uint32(rapid.IntRange(0, 1).Draw(t, "site")),
			})
			living = append(living, len(p.Buffers)-1)
			add(kind, len(p.Buffers)-1)
		case program.Free:
			if len(living) > 0 {
				at := rapid.IntRange(0, len(living)-1).Draw(t, "freed")
				add(kind, living[at])
				living = append(living[:at], living[at+1:]...)
			}
		case program.Launch:
			from := uint32(len(p.Operands))
			for _, b := range living {
				p.Operands = append(p.Operands, program.Operand{Buffer: uint32(b), Bytes: p.Buffers[b].Bytes})
			}
			to := uint32(len(p.Operands))
			cut := uint32(rapid.IntRange(int(from), int(to)).Draw(t, "reads"))
			p.Ops = append(p.Ops, program.Op{
				Work: program.Softmax, Precision: program.BF16, Stream: stream(), FLOPs: int64(to),
				Reads: program.Span{From: from, To: cut}, Writes: program.Span{From: cut, To: to},
			})
			add(kind, len(p.Ops)-1)
		case program.EmptyCache:
			add(kind, 0)
		case program.RecordEvent:
			p.Events = append(p.Events, program.Event{Stream: stream()})
			add(kind, len(p.Events)-1)
		case program.AwaitEvent:
			if n := len(p.Events); n > 0 {
				p.Waits = append(p.Waits, program.Wait{Stream: stream(), Event: uint32(n - 1)})
				add(kind, len(p.Waits)-1)
			}
		}
	}
	p.Phases = []program.Phase{{Step: -1, Name: "set-up"}, {Step: 0, Name: "forward pass"}}
	add(program.MarkPhase, 0)
	add(program.MarkPhase, 1)
	return p
}

func TestAnyProgramIsTheSameWhenReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t)
		again, err := recorded.Read(bytes.NewReader(written(t, header, p)), "run.vprof")
		require.NoError(t, err)
		require.Equal(t, p, again.Recordings[0].Program)
	})
}

// zipped returns a file of the given text.
func zipped(text string) []byte {
	var file bytes.Buffer
	w := gzip.NewWriter(&file)
	_, _ = w.Write([]byte(text)) // a buffer takes everything
	_ = w.Close()
	return file.Bytes()
}

const head = `{"schema":"vprof.program/v1","name":"train.py","gpu":"rtx-3090","torch":"2.15","recordings":[{`

// first is a file with a program of one phase, but for the rest of the program.
const first = head + `"program":{"Phases":[{"Step":0,"Name":"forward"}],"Sites":[{"Op":"mm"}],`

func TestBadFilesSayWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "run.vprof: the file ends in the middle; copy it again, or record again",
		"{}":                            "run.vprof: schema: need vprof.program/v1, the format that this vprof reads; record it again",
		`{"schema":"vprof.program/v2"}`: "run.vprof: schema: need vprof.program/v1, the format that this vprof reads; record it again",
		`{"schema":"vprof.program/v1","torch":"2.15"}`:                                ": name: the name of the model or command is empty; record again with vprof run",
		`{"schema":"vprof.program/v1","name":"a","torch":"what"}`:                     "torch: ",
		`{"schema":"vprof.program/v1","name":"a","torch":"2.15","alloc_conf":"what"}`: "alloc_conf: ",
		`{"schema":"vprof.program/v1","name":"a","torch":"2.15","allocated_bytes":1}`: "reserved_bytes: 0 reserved bytes are less than the 1 allocated bytes; record again with vprof run",
		head[:len(head)-1] + "]}":                                                     "holds no recording",
		head[:len(head)-1] + "null]}":                                                 "recordings[0]: the recording is empty; record again",
		head +
			"}]}": "recordings[0]: the recording has no program; record again",
		head + `"batch":-1,"program":{}}]}`:                                             "recordings[0].batch: ",
		head + `"program":{}}]}`:                                                        "has no phase",
		head + `"program":{"Instructions":[{"Kind":"eat"}]}}]}`:                         `unknown name "eat": need one of alloc, free`,
		head + `"program":{"Buffers":[{"Class":"food"}]}}]}`:                            `unknown name "food": need one of weights`,
		head + `"program":{"Ops":[{"Work":"rest"}]}}]}`:                                 `unknown name "rest": need one of elementwise`,
		head + `"program":{"Ops":[{"Precision":"fp3"}]}}]}`:                             `unknown name "fp3": need one of fp32`,
		head + `"program":{"Buffers":[{"Stream":999}]}}]}`:                              "cannot unmarshal number 999",
		head + `"program":{"Phases":[{"Step":-2,"Name":"what"}]}}]}`:                    "invalid step -2",
		head + `"program":{"Phases":[{"Step":0,"Name":""}]}}]}`:                         `phase ""`,
		first + `"Instructions":[{"Kind":"free","Arg":0}]}}]}`:                          "there is no buffer 0; record it again",
		first + `"Instructions":[{"Kind":"alloc"}],"Buffers":[{}]}}]}`:                  "buffer 0 has 0 bytes",
		first + `"Ops":[{"FLOPs":-1}]}}]}`:                                              "run.vprof: recordings[0]: operator call 0 has the negative number of FLOPs -1; record again",
		first + `"Products":[]},"notes":[{"Buffer":7}]}]}`:                              "run.vprof: recordings[0]: a note at instruction 0 is about buffer 7, which the recording does not have; record again",
		first + `"Products":[]},"notes":[{"At":-1}]}]}`:                                 "instruction -1",
		first + `"Products":[]},"notes":[{"At":2,"Buffer":-1},{"At":1,"Buffer":-1}]}]}`: "notes are not in the order",
	} {
		_, err := recorded.Read(bytes.NewReader(zipped(text)), "run.vprof")
		var bad *input.FormatError
		require.ErrorAs(t, err, &bad, text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := recorded.Read(bytes.NewReader([]byte("import torch")), "train.py")
	require.ErrorContains(t, err, "train.py: is no recorded program")
	whole := zipped(first + `"Products":[]}}]}`)
	_, err = recorded.Read(bytes.NewReader(whole), "run.vprof")
	require.NoError(t, err)
	_, err = recorded.Read(bytes.NewReader(whole[:len(whole)/2]), "run.vprof")
	require.ErrorContains(t, err, "the file ends in the middle; copy it again, or record again")
}

func TestUnsoundProgramsAreNotWritten(t *testing.T) {
	unsound := recorded.File{Header: header, Recordings: []*recorded.Recording{
		{Program: &program.Program{Instructions: []program.Instruction{{}}}},
	}}
	require.ErrorContains(t, unsound.Write(&bytes.Buffer{}), "train.py: recordings[0]: the recording is damaged at instruction 0: cannot allocate: there is no buffer 0; record it again")
	unsound.Name = ""
	require.ErrorContains(t, unsound.Write(&bytes.Buffer{}), ": name: the name of the model or command is empty; record again with vprof run")
}

// A recorded run has its own steps, whatever is asked for; allocator settings may be others.
func TestNoCaseChangesARecordedRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.vprof")
	p := programOf(t, models.Case{Model: "redimnet-b0", Batch: 2})
	require.NoError(t, os.WriteFile(path, written(t, header, p), 0o600))
	m, err := all.Models().Lookup(path)
	require.NoError(t, err)
	for key, c := range map[string]models.Case{
		"batch": {Batch: 3}, "optimizer": {Optimizer: "sgd"}, "amp": {AMP: "bf16"}, "torch": {Torch: "2.12"},
		"lora":     {LoRA: &models.LoRA{}},
		"quantize": {MemoryOptions: models.MemoryOptions{Quantize: "nf4"}},
	} {
		if key != "torch" {
			c.Torch = m.Default.Torch
		}
		_, err := m.Complete(c)
		var wrong *models.CaseError
		require.ErrorAs(t, err, &wrong, key)
		require.Equal(t, key, wrong.Field)
	}
	c := m.Default
	c.AllocConf = "expandable_segments:True"
	rec, err := m.Record(c, testGPU, models.Options{Others: []trace.GPU{{Name: "other"}}})
	require.NoError(t, err)
	require.Equal(t, p.Peak(), rec.Program.Peak())
	require.Equal(t, p.Peak(), rec.ForGPU(0).Program.Peak())
	rec.Discard() // the next recording has its tables, and the run has its own
	again, err := m.Record(c, testGPU, models.Options{})
	require.NoError(t, err)
	require.Equal(t, p.Peak(), again.Program.Peak())
}

func FuzzRead(f *testing.F) {
	f.Add(zipped(first + `"Products":[]}}]}`))
	f.Add(written(f, header, programOf(f, models.Case{Model: "unet", Batch: 1})))
	f.Fuzz(func(t *testing.T, file []byte) {
		f, err := recorded.Read(bytes.NewReader(file), "run.vprof")
		if err != nil {
			return
		}
		var again bytes.Buffer
		require.NoError(t, f.Write(&again))
		second, err := recorded.Read(&again, "run.vprof")
		require.NoError(t, err)
		require.Equal(t, f.Recordings, second.Recordings)
	})
}
