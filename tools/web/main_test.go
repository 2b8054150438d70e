package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/headless"
	"github.com/vprof/vprof/tools/sample"
)

const root = "../.."

// clock fixes the time in all answers.
const clock = "SOURCE_DATE_EPOCH=1800000000"

// served is the page on a local server.
type served struct {
	url, binary string
	server      *httptest.Server

	mu       sync.Mutex
	bytes    int
	requests []string
}

// serve builds the page once, in the folder VPROF_PAGE if it is set, and serves it.
func serve(t testing.TB) *served {
	t.Helper()
	folder, scratch := cmp.Or(os.Getenv("VPROF_PAGE"), filepath.Join(t.TempDir(), "page")), t.TempDir()
	require.NoError(t, build(root, folder, scratch))
	s := &served{binary: filepath.Join(scratch, "vprof")}
	files := http.FileServer(http.Dir(folder))
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted := &counter{ResponseWriter: w}
		files.ServeHTTP(counted, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bytes += counted.bytes
		s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	}))
	t.Cleanup(s.server.Close)
	s.url = s.server.URL + "/?" + clock
	return s
}

type counter struct {
	http.ResponseWriter
	bytes int
}

func (c *counter) Write(b []byte) (int, error) {
	c.bytes += len(b)
	return c.ResponseWriter.Write(b)
}

// loaded returns the number of bytes that the server has sent.
func (s *served) loaded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// tab is a browser tab with the page.
type tab struct{ *headless.Tab }

// js returns the value of a JavaScript expression in the page.
func js[T any](t testing.TB, b *tab, expression string) T { return headless.Value[T](t, b, expression) }

// await waits until a JavaScript expression is true in the page.
func (b *tab) await(t testing.TB, expression string) {
	t.Helper()
	js[bool](t, b, `new Promise((resolve) => {
		const look = () => { if (`+expression+`) resolve(true); else setTimeout(look, 20); };
		look();
	})`)
}

// answer returns the answer to the page's last request, as JSON.
func (b *tab) answer(t testing.TB) string {
	t.Helper()
	b.await(t, `document.body.dataset.answered == turn`)
	return js[string](t, b, `text`)
}

// told returns the output of the native command line for a command of the page, in a folder: of an error its text,
// without the hint at the verb's help.
func (s *served) told(t *testing.T, folder, command string) string {
	t.Helper()
	require.True(t, strings.HasPrefix(command, "vprof "), command)
	cmd := exec.Command("sh", "-c", s.binary+strings.TrimPrefix(command, "vprof")+" --format json")
	cmd.Dir, cmd.Env = folder, []string{clock, "HF_HUB_OFFLINE=1"}
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); err != nil {
		require.ErrorAs(t, err, &failed)
		text, _, _ := strings.Cut(strings.TrimPrefix(string(failed.Stderr), "vprof: "), "\nSee \"vprof ")
		return strings.TrimSpace(text)
	}
	return string(out)
}

// mostRules returns the largest size in bytes of cuDNN's rules for one GPU.
func mostRules(t *testing.T) (most int) {
	sizes := map[string]int{}
	for _, version := range []string{"9.19", "9.26"} { // the default release's rules
		files, err := os.ReadDir(filepath.Join(root, "profiler/stack/cudnn", version))
		require.NoError(t, err)
		for _, f := range files {
			info, err := f.Info()
			require.NoError(t, err)
			sizes[f.Name()] = int(info.Size())
		}
	}
	of := map[string]int{}
	for name, size := range sizes {
		architecture, _, _ := strings.Cut(name, "-")
		of[architecture] += size
		most = max(most, of[architecture])
	}
	return most
}

func TestPage(t *testing.T) {
	headless.Find(t)
	s := serve(t) // before the tab, which has a time limit
	b := &tab{headless.Open(t, 1280, 900)}
	require.NoError(t, chromedp.Listen(b, func(event any) {
		if e, ok := event.(*log.EventEntryAdded); ok { // a violation of the content security policy, or a missing file
			b.Add(e.Entry.Text + " " + e.Entry.URL)
		}
	}))
	began := time.Now()
	require.NoError(t, chromedp.Do(b, chromedp.Navigate(s.url)))
	first := b.answer(t)
	t.Logf("the first answer came after %v and %.2f MB", time.Since(began).Round(time.Millisecond), float64(s.bytes)/1e6)
	empty := t.TempDir()
	require.Equal(t, s.told(t, empty, js[string](t, b, `$("command").textContent`)), first)
	require.LessOrEqual(t, s.bytes+mostRules(t), 14_000_000, "a first answer of a model with convolutions loads too much")
	require.Contains(t, js[string](t, b, `$("verdict").textContent`), "Safe. Batch 4 needs")
	b.await(t, `document.body.dataset.finished`)
	require.Regexp(t, `^\d+ sequences at these settings`, js[string](t, b, `$("largest-text").textContent`))
	require.Equal(t, js[int](t, b, `site.gpus.length`), js[int](t, b, `$("gpus").tBodies[0].rows.length`))

	t.Run("fifty questions", func(t *testing.T) { fifty(t, b, s) })
	t.Run("form", func(t *testing.T) { formed(t, b, s) })
	t.Run("files", func(t *testing.T) { dropped(t, b, s) })
	t.Run("two steps", func(t *testing.T) { steps(t, b, s) })
	t.Run("looks", func(t *testing.T) { looks(t, b) })
	b.Quiet(t)
	t.Run("nothing leaves", func(t *testing.T) { nothingLeaves(t, b, s) })
	t.Run("offline", func(t *testing.T) { offline(t, b, s) })
	b.Quiet(t)
}

// BenchmarkPage measures the time from opening the page, without a cache, to its first answer, and the megabytes loaded
// until then. It also measures the time of later answers, each about another model, GPU or batch.
func BenchmarkPage(b *testing.B) {
	s := serve(b)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			page := &tab{headless.Open(b, 1280, 900)}
			before := s.loaded()
			b.StartTimer()
			require.NoError(b, chromedp.Do(page, chromedp.Navigate(s.url)))
			page.answer(b)
			b.StopTimer()
			b.ReportMetric(float64(s.loaded()-before)/1e6, "MB")
			require.NoError(b, chromedp.Cancel(page))
			b.StartTimer()
		}
	})
	page := &tab{headless.Open(b, 1280, 900)}
	require.NoError(b, chromedp.Do(page, chromedp.Navigate(s.url)))
	page.answer(b)
	for _, q := range []string{
		"model=gpt2&gpu=t4&batch=%d", "model=bert-base&gpu=rtx-4090&batch=%d", "model=resnet50&gpu=a100-80&batch=%d",
		"model=hf:Qwen/Qwen3-4B&gpu=h100&batch=%d&lora=r=8",
	} {
		name, _, _ := strings.Cut(strings.TrimPrefix(q, "model="), "&")
		b.Run(strings.ReplaceAll(name, "/", "-"), func(b *testing.B) {
			shown, judged := 0, 0 // milliseconds until values and verdicts are shown
			for n := 1; b.Loop(); n++ {
				before := js[int](b, page, `turn`)
				js[any](b, page, fmt.Sprintf(`location.hash = "`+q+`", null`, n))
				page.await(b, fmt.Sprintf(`turn > %d`, before))
				page.answer(b)
				shown += js[int](b, page, `+document.body.dataset.shown`)
				judged += js[int](b, page, `+document.body.dataset.judged`)
			}
			b.ReportMetric(float64(shown)/float64(b.N), "shown-ms")
			b.ReportMetric(float64(judged)/float64(b.N), "judged-ms")
		})
	}
}

// questions returns fifty requests over models, GPUs and settings; some are invalid.
func questions() []map[string]any {
	settings := []map[string]any{
		{},
		{"amp": "bf16", "batch": "2"},
		{"checkpointing": "true", "batch": []any{1, 2}},
		{"optimizer": "sgd", "torch": "2.11"},
		{"gpus": "4", "strategy": "fsdp2"},
		{"amp": "fp16", "accumulate": "3"},
		{"alloc-conf": "expandable_segments:True"},
	}
	models := []string{
		"gpt2", "resnet18", "vit-s16-224", "bert-base", "redimnet-b2", "whisper-tiny", "wav2vec2-base", "llama-tiny",
		"hf:Qwen/Qwen3-4B", "unet", "bdslw-spoter",
	}
	gpus := []any{"rtx-4090", "t4", []any{"a100-80", "rtx-3060"}, "h100-80", "rtx-5060-ti"}
	all := []map[string]any{
		{"model": "gpt2", "gpu": "rtx-3060", "lora": "r=8", "quantize": "nf4", "amp": "bf16"},
		{"model": "hf:Qwen/Qwen3-8B", "gpu": "rtx-4090", "lora": "r=16,alpha=32,target=all-linear", "seq-len": 512},
		{"model": "gpt2", "gpu": "no-such-gpu"},
		{"model": "no-such-model"},
		{"model": "gpt2", "batch": "many"},
		{"model": "gpt2", "set": map[string]any{"layers": 3}, "loop": "trainer"},
	}
	for i := 0; len(all) < 50; i++ {
		q := map[string]any{"model": models[i%len(models)], "gpu": gpus[i%len(gpus)]}
		for k, v := range settings[i%len(settings)] {
			q[k] = v
		}
		all = append(all, q)
	}
	return all
}

// asked is the answer to a request, with the milliseconds until its values, its verdict and the whole answer were
// shown. Verdicts are the ones shown before the whole answer.
type asked struct {
	Text                 string
	Shown, Judged, Whole int
	Verdicts             []string
}

func fifty(t *testing.T, b *tab, s *served) {
	folder := t.TempDir()
	var judged, whole []int
	for _, q := range sample.OfSlow(questions()) {
		text, err := json.Marshal(q)
		require.NoError(t, err)
		got := js[asked](t, b, `(async () => {
			const began = performance.now(), since = () => Math.round(performance.now() - began), early = {verdicts: []};
			const {text} = await engine.call("plan", {...`+string(text)+`, report: true}, null, (r) => {
				early.shown ??= since();
				const {verdict} = r.points[0].estimate;
				if (verdict) { early.judged ??= since(); early.verdicts.push(verdict); }
			});
			const whole = since();
			return {shown: whole, judged: whole, ...early, whole, text};
		})()`)
		t.Logf("%5d %5d %5d ms %s", got.Shown, got.Judged, got.Whole, text)
		judged, whole = append(judged, got.Judged), append(whole, got.Whole)
		command := js[string](t, b, `commandOf("plan", `+string(text)+`)`)
		require.Equal(t, s.told(t, folder, command), got.Text, "%s", text)
		for _, verdict := range got.Verdicts {
			require.Contains(t, got.Text, `"verdict": "`+verdict+`"`, "a verdict that is shown early holds: %s", text)
		}
	}
	slices.Sort(judged)
	slices.Sort(whole)
	n := len(whole)
	t.Logf("%d answers: judged after %d ms, at most %d; complete after %d, at most %d", n, judged[n/2], judged[n-1],
		whole[n/2], whole[n-1])
}

// steps tests that the verdict is shown while other releases are computed, and that the next question ends that work.
func steps(t *testing.T, b *tab, s *served) {
	js[any](t, b, `(() => {
		window.received = [];
		const receive = engine.receive;
		engine.receive = (m) => { received.push(m); receive.call(engine, m); };
		location.hash = "model=hf:Qwen/Qwen3-4B&gpu=h100-80&batch=3";
	})()`)
	b.await(t, `received.some((m) => / releases$/.test(m.progress))`)
	require.Regexp(t, `^Tight\. Batch 3 needs`, js[string](t, b, `$("verdict").textContent`))
	require.Regexp(t, `^Verdict ready; still computing \d+ of \d+ releases$`,
		js[string](t, b, `$("state").textContent`))
	require.Contains(t, js[string](t, b, `$("notes").textContent`), "Still being computed: needs with other settings")
	require.True(t, js[bool](t, b, `$("take").hidden`), "the answer that users take with them is complete")
	require.Equal(t, "Searching", js[string](t, b, `$("largest-text").textContent`))
	old := js[int](t, b, `engine.last`)
	js[any](t, b, `location.hash = "model=gpt2&gpu=t4", null`)
	b.await(t, `form.elements.model.value === "gpt2"`)
	got := b.answer(t)
	require.Equal(t, s.told(t, t.TempDir(), js[string](t, b, `$("command").textContent`)), got)
	require.False(t, js[bool](t, b, `$("take").hidden`))
	ended := fmt.Sprintf(`received.filter((m) => m.id === %d && m.text !== undefined)`, old)
	b.await(t, ended+`.length`)
	require.True(t, js[bool](t, b, ended+`.every((m) => m.failed)`), "the work on the old question goes on")
	js[any](t, b, `delete engine.receive, null`)
}

// formed tests the form with the keyboard, a link, and other verbs.
func formed(t *testing.T, b *tab, s *served) {
	js[any](t, b, `form.elements.model.value = "", null`)
	require.NoError(t, chromedp.Do(b,
		chromedp.SendKeys(`[name=model]`, "bert-base"), chromedp.SendKeys(`[name=batch]`, "8,16"+kb.Enter)))
	got := b.answer(t)
	require.Equal(t, `vprof plan --model bert-base --batch 8,16 --gpu rtx-4090 --amp bf16`,
		js[string](t, b, `$("command").textContent`))
	require.Equal(t, s.told(t, t.TempDir(), js[string](t, b, `$("command").textContent`)), got)
	require.Equal(t, "#model=bert-base&batch=8%2C16&gpu=rtx-4090&amp=bf16", js[string](t, b, `location.hash`))
	require.Equal(t, 2, js[int](t, b, `document.querySelectorAll("#points button").length`))
	require.Contains(t, js[string](t, b, `$("printed").textContent`), "bert-base, stage full, bf16 autocast")

	js[any](t, b, `location.hash = "model=resnet18&gpu=t4&more=--loop trainer --optimizer=sgd", null`)
	b.await(t, `form.elements.model.value === "resnet18"`)
	got = b.answer(t)
	require.Equal(t, `vprof plan --model resnet18 --gpu t4 --loop trainer --optimizer sgd`,
		js[string](t, b, `$("command").textContent`))
	require.Equal(t, s.told(t, t.TempDir(), js[string](t, b, `$("command").textContent`)), got)

	js[any](t, b, `document.querySelector("[data-verb=fit]").click(), null`)
	b.await(t, `$("verb").textContent.includes("samples/s")`)

	// The server reports the progress of a search.
	require.Regexp(t, `^\d+ of \d+ `, js[string](t, b, `(async () => {
		let told = "";
		await engine.call("fit", {model: "gpt2", gpu: "t4"}, (words) => { told = words; });
		return told;
	})()`))

	js[any](t, b, `location.hash = "model=no-such-model", null`)
	b.await(t, `$("verdict").textContent.includes("unknown model")`)
	require.True(t, js[bool](t, b, `$("need").hidden`))
}

// dropped tests requests about files, in the page's folder.
func dropped(t *testing.T, b *tab, s *served) {
	folder := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.Mkdir(folder, 0o755))
	for name, from := range map[string]string{
		"config.json":  "models/hfconfig/testdata/configs/qwen2-0.5b/config.json",
		"axolotl.yaml": "examples/axolotl.yaml",
		"model.pt2":    "models/pt2/testdata/timm-resnet18.pt2",
		"photo.png":    "examples/axolotl.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(root, from))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o644))
	}
	for _, c := range []struct{ file, command string }{
		{"config.json", "vprof plan --gpu rtx-4090 --model hf:config.json"},
		{"model.pt2", "vprof plan --gpu rtx-4090 --model model.pt2"},
		{"axolotl.yaml", "vprof plan axolotl.yaml --gpu rtx-4090"},
	} {
		js[any](t, b, `files.clear(), location.hash = "gpu=rtx-4090", null`)
		b.await(t, `form.elements.model.value === "" && form.elements.gpu.value === "rtx-4090"`)
		b.answer(t)
		require.NoError(t, chromedp.Do(b, chromedp.SetUploadFiles(`#file`, []string{filepath.Join(folder, c.file)})))
		b.await(t, `files.size === 1 && $("files").textContent.includes("`+c.file+`")`)
		got := b.answer(t)
		require.Equal(t, c.command, js[string](t, b, `$("command").textContent`))
		require.Equal(t, s.told(t, folder, c.command), got)
	}
	js[any](t, b, `files.clear(), showFiles(), null`)
	require.NoError(t, chromedp.Do(b, chromedp.SetUploadFiles(`#file`, []string{filepath.Join(folder, "photo.png")})))
	b.await(t, `$("verdict").textContent.startsWith("No answer. vprof cannot read photo.png.")`)
	js[any](t, b, `files.clear(), showFiles(), null`)
}

// looks tests the page at the width of a phone, in both themes, and that every control has a name.
func looks(t *testing.T, b *tab) {
	js[any](t, b, `location.hash = "model=gpt2&gpu=rtx-4090", null`)
	b.await(t, `form.elements.model.value === "gpt2"`)
	b.answer(t)
	ink := js[string](t, b, `getComputedStyle(document.body).color`)
	_, err := chromedp.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(b, chromedp.EmulateViewport(360, 740)))
	require.NotEqual(t, ink, js[string](t, b, `getComputedStyle(document.body).color`))
	require.LessOrEqual(t, js[int](t, b, `document.documentElement.scrollWidth`), 360)
	require.Empty(t, js[[]string](t, b, `[...document.querySelectorAll("input, select, button")].filter((e) =>
		!e.labels?.length && !e.textContent.trim() && !e.ariaLabel).map((e) => e.outerHTML)`))
	// The tab key reaches every control in order.
	require.NoError(t, chromedp.Do(b, chromedp.Focus(`.skip`), chromedp.KeyEvent(kb.Tab)))
	require.Equal(t, "model", js[string](t, b, `document.activeElement.name`))
	require.NoError(t, chromedp.Do(b, chromedp.EmulateViewport(1280, 900)))
}

// nothingLeaves tests that requests only load files and carry no data, and that workers reach no other server.
func nothingLeaves(t *testing.T, b *tab, s *served) {
	s.mu.Lock()
	for _, r := range s.requests {
		require.Regexp(t, `^GET /[\w./-]*(\?`+clock+`)?$`, r)
	}
	s.mu.Unlock()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s came to another server", r.Method, r.URL)
	}))
	defer other.Close()
	require.Equal(t, "refused", js[string](t, b, `new Promise((resolve) => {
		const say = "fetch('`+other.URL+`', {mode: 'no-cors'}).then(() => postMessage('sent'), () => postMessage('refused'))";
		new Worker(URL.createObjectURL(new Blob([say]))).onmessage = (e) => resolve(e.data);
	})`))
	b.Forget() // drop the expected violation
}

// offline stops the server and reloads the page.
func offline(t *testing.T, b *tab, s *served) {
	b.await(t, `$("offline").textContent === "All of it works offline."`)
	s.server.Close()
	require.NoError(t, chromedp.Do(b, chromedp.Reload()))
	b.await(t, `document.body.dataset.answered > 0`)
	js[any](t, b, `location.hash = "model=resnet50&gpu=a100-80&torch=2.11", null`)
	b.await(t, `form.elements.model.value === "resnet50"`)
	got := b.answer(t)
	require.Equal(t, s.told(t, t.TempDir(), js[string](t, b, `$("command").textContent`)), got)
}
