from tests.classifiers import blobs, classifier, model

__all__ = ["blobs", "classifier", "model"]
