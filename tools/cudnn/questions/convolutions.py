"""Lists the convolutions of models of timm, torchvision, segmentation-models-pytorch, monai, diffusers and
transformers, as input of command questions (-list). Models and inputs are on the meta device, so nothing is computed.

    python convolutions.py --minutes 20 > libraries.txt

A line is dims transposed samples Ci Co groups in.. kernel.. stride.. pad.. dilation.. out.. where samples is the
convolution's number of samples for each sample of the batch (windows, frames), usually 1.
"""

import argparse
import contextlib
import gc
import itertools
import logging
import random
import signal
import sys
import time
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode

BATCH = 2
SIZES = (128, 160, 192, 256, 288, 320, 384, 448, 512)


class Convolutions(TorchDispatchMode):
    """Records each call of aten.convolution."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        y = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            x, w, _, stride, pad, dilation, transposed, _, groups = args
            n, *spatial = x.shape[:1] + x.shape[2:]
            dims = len(spatial)
            full = [list(v) * dims if len(v) == 1 else list(v) for v in (stride, pad, dilation)]
            samples = n // BATCH if n % BATCH == 0 else 1
            self.seen.add((dims, int(transposed), samples, x.shape[1], y.shape[1], groups, *spatial, *w.shape[2:], *full[0], *full[1], *full[2], *y.shape[2:]))
        return y


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(BATCH, *shape, dtype=dtype, device="meta")


def of_timm():
    import timm

    def one(name, size):
        model = timm.create_model(name, **({"img_size": size} if size else {}))
        c, *hw = model.default_cfg["input_size"]
        return model, (zeros(c, *([size, size] if size else hw)),)

    for name in timm.list_models():
        yield lambda name=name: one(name, None)
        if random.random() < 0.3:
            yield lambda name=name: resized(timm.create_model(name), random.choice(SIZES))


def resized(model, size):
    return model, (zeros(3, size, size),)


def of_torchvision():
    from torchvision import models

    for name in models.list_models():
        if "quantized" in name or "rcnn" in name or "detection" in name or "raft" in name or "retinanet" in name or "ssd" in name or "fcos" in name:
            continue
        if name in models.list_models(models.video):
            for size in (112, 128, 224):
                yield lambda name=name, size=size: (models.get_model(name, weights=None), (zeros(3, 16, size, size),))
            continue
        kw = {"weights_backbone": None} if name in models.list_models(models.segmentation) else {}
        for size in (224, 299, *random.sample(SIZES, 3), 520 if kw else 232):
            yield lambda name=name, size=size, kw=kw: resized(models.get_model(name, weights=None, **kw), size)


def of_smp():
    import segmentation_models_pytorch as smp

    encoders = "resnet18 resnet34 resnet50 resnet101 resnext50_32x4d resnext101_32x8d timm-resnest14d timm-resnest50d timm-res2net50_26w_4s se_resnet50 se_resnext50_32x4d densenet121 densenet169 inceptionresnetv2 inceptionv4 efficientnet-b0 efficientnet-b1 efficientnet-b3 efficientnet-b4 efficientnet-b5 efficientnet-b7 mobilenet_v2 dpn68 dpn92 vgg11 vgg13_bn vgg16_bn vgg19_bn xception mit_b0 mit_b2 mobileone_s0 timm-mobilenetv3_large_100 timm-regnety_016 tu-convnext_tiny tu-hrnet_w18 timm-skresnet34 timm-gernet_s".split()
    archs = "Unet UnetPlusPlus MAnet Linknet FPN PSPNet PAN DeepLabV3 DeepLabV3Plus UPerNet Segformer".split()
    for arch, encoder in itertools.product(archs, encoders):
        for size in random.sample((224, 256, 256, 320, 384, 512), 2):
            yield lambda arch=arch, encoder=encoder, size=size: resized(getattr(smp, arch)(encoder_name=encoder, encoder_weights=None, classes=random.choice((1, 2, 3, 4, 10, 19, 21, 150))), size)


def of_monai():
    from monai.networks import nets

    for dims, size in [(3, s) for s in (32, 48, 64, 80, 96, 128)] + [(2, s) for s in (64, 96, 128, 256, 512)]:
        for cin, out in ((1, 2), (1, 4), (4, 3), (1, 14)):
            image = (size,) * dims
            x = (cin, *image)
            for channels in ((16, 32, 64, 128), (16, 32, 64, 128, 256), (32, 64, 128, 256, 512), (8, 16, 32, 64), (64, 128, 256, 512, 1024)):
                strides = (2,) * (len(channels) - 1)
                for units in (0, 2):
                    yield lambda d=dims, i=cin, o=out, c=channels, s=strides, u=units, x=x: (nets.UNet(spatial_dims=d, in_channels=i, out_channels=o, channels=c, strides=s, num_res_units=u), (zeros(*x),))
                yield lambda d=dims, i=cin, o=out, c=channels, s=strides, x=x: (nets.AttentionUnet(spatial_dims=d, in_channels=i, out_channels=o, channels=c, strides=s), (zeros(*x),))
            for f in (8, 16, 32):
                yield lambda d=dims, i=cin, o=out, f=f, x=x: (nets.SegResNet(spatial_dims=d, init_filters=f, in_channels=i, out_channels=o), (zeros(*x),))
                yield lambda d=dims, i=cin, o=out, f=f, x=x: (nets.BasicUNet(spatial_dims=d, in_channels=i, out_channels=o, features=(f, f, 2 * f, 4 * f, 8 * f, f)), (zeros(*x),))
            yield lambda d=dims, i=cin, o=out, x=x: (nets.BasicUNet(spatial_dims=d, in_channels=i, out_channels=o), (zeros(*x),))
            yield lambda d=dims, i=cin, o=out, x=x: (nets.VNet(spatial_dims=d, in_channels=i, out_channels=o), (zeros(*x),))
            yield lambda d=dims, i=cin, o=out, x=x: (nets.HighResNet(spatial_dims=d, in_channels=i, out_channels=o), (zeros(*x),))
            for n in (4, 5):
                yield lambda d=dims, i=cin, o=out, x=x, n=n: (nets.DynUNet(spatial_dims=d, in_channels=i, out_channels=o, kernel_size=[3] * n, strides=[1] + [2] * (n - 1), upsample_kernel_size=[2] * (n - 1)), (zeros(*x),))
            for f in (16, 32):
                yield lambda d=dims, i=cin, o=out, x=x, f=f, s=image: (nets.UNETR(in_channels=i, out_channels=o, img_size=s, feature_size=f, hidden_size=384, mlp_dim=1536, num_heads=6, spatial_dims=d), (zeros(*x),))
            for f in (12, 24, 48):
                yield lambda d=dims, i=cin, o=out, x=x, f=f: (nets.SwinUNETR(in_channels=i, out_channels=o, feature_size=f, spatial_dims=d), (zeros(*x),))
            for name in ("DenseNet121", "DenseNet169", "SEResNet50", "SEResNext50"):
                yield lambda d=dims, i=cin, o=out, x=x, name=name: (getattr(nets, name)(spatial_dims=d, in_channels=i, **({"out_channels": o} if "Dense" in name else {"num_classes": o})), (zeros(*x),))
            for name in ("resnet10", "resnet18", "resnet34", "resnet50"):
                yield lambda d=dims, i=cin, o=out, x=x, name=name: (getattr(nets, name)(spatial_dims=d, n_input_channels=i, num_classes=o), (zeros(*x),))
            yield lambda d=dims, i=cin, o=out, x=x: (nets.EfficientNetBN("efficientnet-b0", pretrained=False, spatial_dims=d, in_channels=i, num_classes=o), (zeros(*x),))
            yield lambda d=dims, i=cin, x=x: (nets.AutoEncoder(spatial_dims=d, in_channels=i, out_channels=i, channels=(16, 32, 64), strides=(2, 2, 2)), (zeros(*x),))


def of_diffusers():
    import diffusers as d

    step = lambda: torch.zeros(BATCH, dtype=torch.long, device="meta")
    for channels, layers, size in itertools.product(((64, 128, 256, 256), (128, 128, 256, 256, 512, 512), (128, 256, 512, 512), (128, 256, 256, 256), (224, 448, 672, 896), (32, 64), (64, 128, 128), (32, 64, 64), (64, 128, 256)), (1, 2), (28, 32, 64, 128, 256)):
        for cin in (1, 3, 4):
            yield lambda c=channels, n=layers, s=size, i=cin: (d.UNet2DModel(sample_size=s, in_channels=i, out_channels=i, block_out_channels=c, layers_per_block=n, down_block_types=("DownBlock2D",) * len(c), up_block_types=("UpBlock2D",) * len(c)), (zeros(i, s, s), step()))
    for channels, size in itertools.product(((320, 640, 1280, 1280), (128, 256, 512, 512), (160, 320, 640, 640), (64, 128, 256, 256), (192, 384, 768, 768), (32, 64, 64, 64)), (32, 48, 64, 96, 128)):
        for cin in (4, 9):
            yield lambda c=channels, s=size, i=cin: (d.UNet2DConditionModel(sample_size=s, in_channels=i, block_out_channels=c, cross_attention_dim=64, attention_head_dim=8), (zeros(i, s, s), step(), zeros(7, 64)))
    for channels, size, layers in itertools.product(((128, 256, 512, 512), (64, 128, 256), (64, 128), (32, 64, 128), (64, 128, 256, 256), (128, 256, 512)), (64, 128, 256, 512), (1, 2)):
        for latent in (4, 16):
            yield lambda c=channels, s=size, n=layers, z=latent: (d.AutoencoderKL(block_out_channels=c, latent_channels=z, layers_per_block=n, down_block_types=("DownEncoderBlock2D",) * len(c), up_block_types=("UpDecoderBlock2D",) * len(c)), (zeros(3, s, s),))
        yield lambda c=channels, s=size, n=layers: (d.VQModel(block_out_channels=c, layers_per_block=n, down_block_types=("DownEncoderBlock2D",) * len(c), up_block_types=("UpDecoderBlock2D",) * len(c)), (zeros(3, s, s),))


def of_transformers():
    import transformers as t

    def images(config, size, kw):
        c = getattr(t, config + "Config")(**kw)
        return t.AutoModel.from_config(c), (zeros(3, size, size),)

    for config, size in itertools.product("ConvNext ConvNextV2 Segformer MobileViT MobileViTV2 MobileNetV1 MobileNetV2 ResNet RegNet Levit PoolFormer VisualAttentionNetwork Van FocalNet Bit EfficientNet DPT Swin Swinv2 PvtV2 Pvt Cvt GLPN SwiftFormer EfficientFormer DINOv3ConvNext HGNetV2 TextNet Beit Dinov2 Hiera".split(), (224, 256, 384, 512)):
        yield lambda c=config, s=size: images(c, s, {})
    for config, n in itertools.product("Wav2Vec2 Hubert WavLM UniSpeech Data2VecAudio SEW SEWD Encodec Dac".split(), (16000, 32000, 48000, 80000, 160000)):
        yield lambda c=config, n=n: (t.AutoModel.from_config(getattr(t, c + "Config")()), (zeros(1, n) if c in ("Encodec", "Dac") else zeros(n),))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=20)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    random.seed(a.seed)
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    sources = [list(of()) for of in (of_timm, of_torchvision, of_smp, of_monai, of_diffusers, of_transformers)]
    for s in sources:
        random.shuffle(s)
    # timm has the most models: two of them come for each one of the other libraries.
    turns = [(of + 0.5) / len(s) for s in sources for of in range(len(s))]
    order = [m for _, m in sorted(zip(turns, itertools.chain(*sources)), key=lambda t: t[0])]
    seen, failed, done, end = set(), 0, 0, time.time() + 60 * a.minutes
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    for make in order:
        if time.time() > end:
            break
        note = Convolutions()
        signal.alarm(30)
        try:
            with torch.device("meta"), torch.no_grad(), contextlib.redirect_stdout(sys.stderr):
                model, inputs = make()
                with note:
                    model(*inputs)
            done += 1
        except Exception:  # a size that the model does not accept
            failed += 1
        finally:
            signal.alarm(0)
        for line in sorted(note.seen - seen):
            print(*line)
        seen |= note.seen
        model = inputs = None
        if done % 50 == 0:
            gc.collect()
            print(f"{done} models, {failed} refused, {len(seen)} convolutions of {len(order)} tries", file=sys.stderr)
    print(f"{done} models, {failed} refused, {len(seen)} convolutions", file=sys.stderr)


if __name__ == "__main__":
    main()
