"""The filters compared: this library, the native module, other packages, plain bitmaps."""
